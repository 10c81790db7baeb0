#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many clients of one daemon, counted and not timed (tests/bench/serve_load.py times them)."""
import json
import os
import subprocess
import threading

import tap
from place import BUILD, DEADLINE, Place
from serve import Serve, ask

NONE = "no_device\n"
CLIENTS = 200
REQUESTS = 50000
GROWTH_KB = 2 << 10


def load(daemon, body, clients, requests):
    done = subprocess.run([os.path.join(BUILD, "tests", "bench_serve"), daemon.socket, str(clients),
                           str(requests)], input=json.dumps(body).encode(), stdout=subprocess.PIPE,
                          check=True, timeout=DEADLINE)
    return json.loads(done.stdout)


def two_hundred_clients_of_a_cold_key_cause_one_tune():
    with Place(script=NONE) as place, Serve(place) as daemon:
        status = []
        barrier = threading.Barrier(CLIENTS)

        def one(i):
            connection = daemon.connect()
            connection.connect()
            barrier.wait()
            # The same problem in two hundred texts.
            asked = json.dumps(ask(gpu="L4"), indent=i % 10) + " " * (i // 10)
            status.append(daemon.post("/v1/kernel", asked, connection=connection)[0])
            connection.close()
        threads = [threading.Thread(target=one, args=(i,)) for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tap.equal(status, [200] * CLIENTS)
        tap.equal(len(daemon.get("/v1/winners")[1]["winners"]), 1)
        # And each config of its space was tried once.
        answer = daemon.post("/v1/kernel", ask(gpu="L4"))[1]["answer"]
        told = place.json("explain", "--gpu", "L4", "--seq", "128", "--batch", "1", "--heads", "1")
        tap.equal(answer["funnel"]["compiled"], len([c for c in told["configs"]
                                                     if c["status"] == "compiled"]))


def fifty_thousand_answers_from_memory_leave_it_as_it_is():
    with Place(script=NONE) as place:
        place.take_cubins()
        with Serve(place) as daemon:
            tap.equal(daemon.post("/v1/kernel", ask(gpu="L4", effort="predict"))[0], 200)
            load(daemon, ask(gpu="L4", effort="predict"), 64, 5000)
            before, lookups = daemon.memory_kb(), daemon.metric("lookups_total")
            done = load(daemon, ask(gpu="L4", effort="predict"), 64, REQUESTS)
            tap.equal((done["good"], done["other"]), (REQUESTS, 0))
            # Whoever writes to the store makes an answer be looked up again, now and then.
            assert daemon.metric("lookups_total") - lookups < 100, daemon.metric("lookups_total")
            with open("/proc/%d/maps" % daemon.process.pid, encoding="utf-8") as maps:
                if "libasan" in maps.read():
                    return
            grown = daemon.memory_kb() - before
            print("# %d kB more" % grown)
            assert grown < GROWTH_KB, "%d kB more" % grown


tap.main([
    two_hundred_clients_of_a_cold_key_cause_one_tune,
    fifty_thousand_answers_from_memory_leave_it_as_it_is,
])
