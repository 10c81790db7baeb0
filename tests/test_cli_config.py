#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Settings of files: which are read, which goes first, what they may not say."""
import os
import subprocess

import tap
from place import DEADLINE, FA_TUNE, SIXTEEN, SMALL, Place

EXPLAIN = ["explain", "--seq", "64", "--top", "1"]


def write(place, name, text):
    path = os.path.join(place.folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def project(place, text):
    return write(place, "fa-tune.toml", text)


def user(place, text):
    return write(place, ".config/fa-tune/config.toml", text)


def settings(place):
    return {s["setting"]: (s["value"], s["origin"], s.get("line"), s.get("file", s.get("variable")))
            for s in place.json("config")["settings"]}


def a_broken_file_fails_only_the_verbs_that_read_it():
    with Place() as place:
        place.run("--gpu", "L4", *SMALL, "--effort", "predict", "--quiet")
        os.rename(place.store, "%s/other.db" % place.folder)
        for verb in ("show", "import"):
            tap.has(place.run(verb, "other.db", status=1).stderr, "other.db is no bundle but a store: --store names it")
        none = (["gpus"], ["trust", "list"], ["completion", "bash"], ["show", "--help"], ["serve", "--help"], ["help"])
        for text, told, stopped, others in (
                ("bad", '"=" is missing after bad', (["show"], ["explain", *SMALL], ["serve", "--openapi"]), ()),
                ('effort = "paitent"', "did you mean patient?", (SMALL, ["sweep", *SMALL]),
                 (["show"], ["explain", *SMALL, "--top", "1"], [*SMALL, "--effort", "predict"], ["serve", "--openapi"]))):
            path = project(place, "gpu = \"L4\"\n" + text + "\n")
            for verb in (*none, *others):
                tap.lacks(place.run(*verb).stderr, "line 2")
            check, = [check for check in place.json("doctor", status=1)["checks"] if check["name"] == "settings"]
            tap.equal(check["level"], "fail")
            for sentence in (check["text"], *(place.run(*verb, status=2).stderr for verb in (["config"], *stopped))):
                tap.has(sentence, path + ": line 2: ")
                tap.has(sentence, told)
        place.run("keygen", "--out", "key")
        os.remove(path)
        mine = user(place, 'server = "foo"\n')
        tap.has(place.run("config", status=2).stderr, mine + ": line 1: server needs unix:/PATH or http://HOST:PORT")
        for right in ("/run/fa-tune.sock", "unix:/run/fa-tune.sock", "http://tuner:8080"):  # as the library takes it
            user(place, 'server = "%s"\n' % right)
            tap.equal(settings(place)["server"][0], right)


def an_option_goes_before_the_variable_the_project_and_the_user():
    with Place(space=None) as place:
        def store_now():
            return settings(place)["store"][:2]

        tap.equal(settings(place)["gpu"], (None, "default", None, None))
        mine = user(place, 'gpu = "T4"\nstore = "%s/mine.db"\n' % place.folder)
        tap.equal(settings(place)["gpu"], ("T4", "file", 1, mine))
        tap.equal(place.json(*EXPLAIN)["gpu"]["name"], "T4")
        ours = project(place, '# ours\ngpu = \'L4\'   # of the lab\n')
        tap.equal(settings(place)["gpu"], ("L4", "file", 2, ours))
        tap.equal(place.json(*EXPLAIN)["gpu"]["name"], "L4")
        tap.equal(place.json(*EXPLAIN, "--gpu", "A30")["gpu"]["name"], "A30")
        tap.has(place.run(*EXPLAIN, "--device", "0", status=1).stderr, "driver")  # the device here, not the file's GPU
        tap.equal(store_now(), (place.store, "environment"))
        tap.equal(place.json("show")["store"], place.store)
        del place.env["FA_TUNE_STORE"]
        tap.equal(store_now(), (place.folder + "/mine.db", "file"))
        tap.equal(place.json("show")["store"], place.folder + "/mine.db")
        tap.equal(place.json("show", "--store", "other.db")["store"], "other.db")
        place.env["FA_TUNE_STORE"] = ""  # as if it were not set
        tap.equal(store_now(), (place.folder + "/mine.db", "file"))
        tap.equal(place.json("show")["store"], place.folder + "/mine.db")
        del place.env["FA_TUNE_STORE"]
        os.remove(mine)
        tap.equal(store_now(), (place.folder + "/.cache/fa-tune/store.db", "default"))
        place.env["XDG_CONFIG_HOME"] = os.path.join(place.folder, "xdg")
        write(place, "xdg/fa-tune/config.toml", "jobs = 3\n")
        tap.equal(settings(place)["jobs"][:2], ("3", "file"))
        tap.has(place.run("config").stdout, "~/xdg/fa-tune/config.toml, line 1")


def settings_reach_tunes_and_sweeps_and_no_list_of_winners():
    with Place() as place:
        project(place, 'gpu = "L4"\neffort = "predict"\ntime = "30m"\ntrials = 2\njobs = 1\n')
        told = place.run(*SMALL)
        tap.has(told.stdout, "on L4 ")
        tap.has(told.stderr, "fa-tune.toml sets gpu = L4, effort = predict, jobs = 1")
        tap.has(told.stderr, "to compile, with 1 worker\n")
        tap.lacks(place.run(*SMALL, "--quiet").stderr, "fa-tune.toml")
        tap.equal(place.json("sweep", "--seq", "64", "--batch", "1", "--heads", "1")["sweep"]["state"], "budget-spent")
        project(place, 'gpu = "T4"\n')
        tap.equal(len(place.json("show")["winners"]), 1)
        tap.equal(len(place.json("report")["problems"]), 2)  # the sweep's, half tuned, too
        tap.has(place.run("rm", "--all", "--dry-run").stdout, "would forget 1 winner")


def a_time_limit_lets_effort_predict_compile_no_more_than_without_one():
    with Place(space=SIXTEEN) as place:
        for number, (more, least) in enumerate((([], 8), (["--time", "30m"], 8), (["--time", "0.001s", "--jobs", "1"], 1))):
            length = ["--seq", str(512 << number), "--effort", "predict", "--gpu", "L4"]
            told = place.json(*length, *more)
            tap.equal((more, told["funnel"]["compiled"], told["answer"].get("strategy")), (more, least, None))


def the_nearest_file_above_the_folder_is_the_projects():
    with Place(space=None) as place:
        inner = os.path.join(place.folder, "a", "b")
        os.makedirs(inner)

        def gpu_in(folder):
            done = subprocess.run([FA_TUNE, "explain", "--seq", "64", "--top", "1"], env=place.env, cwd=folder, check=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", timeout=DEADLINE)
            return done.stdout.partition(" on ")[2].split()[0]

        project(place, 'gpu = "T4"\n')
        tap.equal(gpu_in(inner), "T4")
        write(place, "a/fa-tune.toml", 'gpu = "L4"\n')
        tap.equal((gpu_in(inner), gpu_in(place.folder)), ("L4", "T4"))


def a_projects_file_names_no_store_and_no_service_and_is_this_users():
    with Place(space=None) as place:
        for key, variable in (("store", "FA_TUNE_STORE"), ("server", "FA_TUNE_SERVER")):
            path = project(place, '\n%s = "/tmp/x"\n' % key)
            for verb in (["show"], ["config"], [*EXPLAIN, "--gpu", "L4"], ["serve", "--openapi"]):
                told = place.run(*verb, status=2).stderr
                tap.has(told, "settings %s: line 2: %s is not taken from a project's file" % (path, key))
                tap.has(told, variable)
        place.run("help")
        place.run("version")
        if os.geteuid() == 0:
            os.chown(path, 12345, 12345)
            tap.has(place.run("show").stderr, "note: ~/fa-tune.toml is not read: it belongs to another user")
            tap.has(place.run("config").stdout, "~/fa-tune.toml is not read")
            # Nor does another's link make a file of ours a setting.
            os.chown(path, 0, 0)
            tap.lacks(place.run("config", status=2).stderr, "is not read")
            os.rename(path, path + ".other")
            os.symlink(path + ".other", path)
            os.lchown(path, 12345, 12345)
            tap.has(place.run("config").stdout, "~/fa-tune.toml is not read")


def what_is_wrong_in_a_file_is_told_with_its_line():
    table = [
        ("gpu = L4", ['L4 is no value', 'a text in quotes, as in gpu = "L4"']),
        ("gpu", ['"=" is missing after gpu']),
        ("gpu =", ["value of gpu is missing"]),
        ('gpu = "L4', ['no closing "']),
        ('gpu = "L44"', ['no GPU called "L44"', "L4"]),
        ('gpu = ""', ["empty"]),
        ('gpu = "L4" "T4"', ["there is text after the value of gpu"]),
        ('gpu = "L4"\ngpu = "T4"', ["line 2: gpu is set in line 1"]),
        ('[tune]\ngpu = "L4"', ["tables are not taken"]),
        ('gpus = "L4"', ['"gpus" is no setting: did you mean gpu?']),
        ("colour = 1", ['"colour" is no setting: use gpu']),
        ('effort = "paitent"', ["did you mean patient?"]),
        ("jobs = -1", ["-1 is no value", "as in jobs = 8"]), ("jobs = 1_0", ["1_0 is no value", "as in jobs = 8"]),
        ("cost = -1", ["-1 is no value", "as in cost = 2.50"]), ("cost = +5", ["as in cost = 2.50"]),
        ("jobs = 0", ['line 1: jobs "0": use a whole number from 1 to 1024']),
        ("jobs = 1.5", ["1 to 1024"]),
        ("time = true", ["true is no value", 'as in time = "30m"']),
        ('time = "soon"', ["as in 90s, 30m"]),
        ("price = .5", ["as in price = 0.50"]),
        ('store = "a\\tb"', ["escapes are not taken"]),
        ('store = "~/store.db"', ["the whole path"]),
        ('store = "store.db"', ["the whole path"]),
        ("gpu = \x1b[31m", ["control character"]),
        ("# \x07", ["control character"]),
        ("= 5", ["no KEY = VALUE"]),
        ("x" * 5000, ["no KEY = VALUE"]),
        ('store = "%s"' % ("x" * 5000), ["longer than 1023 bytes"]),
    ]
    with Place(space=None) as place:
        for text, parts in table:
            path = user(place, text)
            told = place.run("config", status=2).stderr
            tap.has(told, "settings %s: line " % path)
            for part in parts:
                tap.has(told, part)
            assert told.count("\n") == 1 and "\x1b" not in told, told
        user(place, "#" * (65 << 10))
        tap.has(place.run("show", status=2).stderr, "at most 64 KiB")
        os.remove(path)
        os.mkfifo(path)
        tap.has(place.run("show", status=2).stderr, "no regular file")


tap.main([
    a_broken_file_fails_only_the_verbs_that_read_it,
    an_option_goes_before_the_variable_the_project_and_the_user,
    settings_reach_tunes_and_sweeps_and_no_list_of_winners,
    a_time_limit_lets_effort_predict_compile_no_more_than_without_one,
    the_nearest_file_above_the_folder_is_the_projects,
    a_projects_file_names_no_store_and_no_service_and_is_this_users,
    what_is_wrong_in_a_file_is_told_with_its_line,
])
