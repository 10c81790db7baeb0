# SPDX-License-Identifier: Apache-2.0
"""What the tests of a service's clients share: a tuned store, and what a good service says of it."""
import hashlib
import json
import os
import sqlite3

import tap
from place import Place
from stub_service import failure, reply

L4 = "device name=NVIDIA_L4 sm=89 sms=58\ninit_once\n"
EXAMPLE = ["--seq", "128", "--batch", "1", "--heads", "2", "--causal"]  # of tune_and_launch.c


class Served:
    """A store with one winner, made once, and what a good service says of it."""
    made = None

    def __init__(self):
        with Place(script=L4) as place:
            place.take_cubins()
            document = place.json(*EXAMPLE, "--quiet")
            with open(place.store, "rb") as file:
                self.store = file.read()
            answer = document["answer"]
            with sqlite3.connect(place.store) as store:
                self.cubin, = store.execute("SELECT bytes FROM cubin WHERE key = ?",
                                            (answer["cubin_key"],)).fetchone()
        self.answer = answer
        self.where = {"key": answer["cubin_key"], "size": len(self.cubin),
                      "sha256": hashlib.sha256(self.cubin).hexdigest()}

    @classmethod
    def get(cls):
        cls.made = cls.made or cls()
        return cls.made

    def document(self, **changes):
        document = json.loads(json.dumps({"answer": self.answer, "cubin": self.where}))
        for name, value in changes.items():
            part, _, field = name.partition("__")
            if field:
                document[part][field] = value
            else:
                document[part] = value
        return document

    def answers(self, request, **changes):
        """The good service."""
        if request.path == "/v1/kernel":
            return reply(200, self.document(**changes))
        if request.path == "/v1/cubins/" + self.where["key"]:
            return reply(200, self.cubin, ETag='"%s"' % self.where["sha256"])
        if request.path.startswith("/v1/winners"):
            return reply(200, {"winners": [self.answer]})
        return failure(404, "FA_ENOTFOUND", "there is nothing here")


def local_winner(place):
    """The place's own store has the winner: the local way is short."""
    with open(os.open(place.store, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(Served.get().store)


def one_note(text, part):
    notes = [line for line in text.splitlines() if line.startswith("note: ")]
    assert len(notes) == 1, text
    tap.has(notes[0], "cannot be used: ")
    tap.has(notes[0], part)
