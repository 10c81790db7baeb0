#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fa_tune.caches: other tuners' values in the store. Their interfaces are made up here by the names of their classes; where
FA_TEST_PACKAGES names a folder with the real Triton, it is asked too."""
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import postgres
import tap
from place import BUILD, SOURCE, Place

PACKAGE = os.path.join(BUILD, "python")
L4 = "device sm=89\n"
H100 = "device name=H100 sm=90 sms=132 smem_block=232448 smem_sm=233472 l2=50M bus=5120 clock=1980\n"
H200 = "device name=H200 sm=90 sms=132 smem_block=232448 smem_sm=233472 l2=50M bus=6144 clock=1980\n"

# What our classes take from Triton, PyTorch and Helion, and nothing more.
MADE_UP = {
    "triton/__init__.py": "__version__ = '3.6.0'",
    "triton/runtime/__init__.py": "",
    "triton/runtime/cache.py": """
        import json, os

        class FileCacheManager:
            def __init__(self, key, override=False, dump=False):
                self.key = key
                self.cache_dir = os.path.join(os.environ["TRITON_CACHE_DIR"], key)
                os.makedirs(self.cache_dir, exist_ok=True)

            def get_file(self, name):
                path = os.path.join(self.cache_dir, name)
                return path if os.path.exists(path) else None

            def put(self, data, name, binary=True):
                path = os.path.join(self.cache_dir, name)
                with open(path + ".part", "wb") as file:
                    file.write(data if isinstance(data, bytes) else data.encode())
                os.replace(path + ".part", path)
                return path

            def get_group(self, name):
                path = self.get_file("__grp__" + name)
                if path is None:
                    return None
                with open(path) as file:
                    return json.load(file)["child_paths"]

            def put_group(self, name, group):
                return self.put(json.dumps({"child_paths": group}), "__grp__" + name)
        """,
    "triton/runtime/autotuner.py": """
        import hashlib, json, types

        class JITFunction:
            __name__, cache_key = "add", "source"

        class Config:
            pre_hook = None

            def __init__(self, **kwargs):
                self.kwargs = kwargs

            def __str__(self):
                return str(self.kwargs)

        class driver:
            active = types.SimpleNamespace(get_current_target=lambda: "cuda 90")

        def triton_key():
            return "3.6.0"

        def get_cache_invalidating_env_vars():
            return {}

        class Autotuner:
            def __init__(self, configs, clock):
                self.fn, self.base_fn, self.configs, self._do_bench = JITFunction(), JITFunction(), configs, clock
                self.keys, self.arg_names, self.nargs, self.cache_results = ["n"], ["x", "n"], {}, True

            def _bench(self, *args, config, **meta):
                return self._do_bench(config)

            def run(self, x, n):
                from fa_tune.caches import TritonCache as get_cache_manager
                self.nargs = {"x": x, "n": n}
                key = hashlib.sha256((str(n) + "".join(map(str, self.configs))).encode()).hexdigest()
                cache, name = get_cache_manager(key), "add.autotune.json"
                path = cache.get_file(name)
                if path is None:
                    timings = [(config.kwargs, self._bench(x, n, config=config)) for config in self.configs]
                    path = cache.put(json.dumps({"key": [n], "configs_timings": timings}), name, binary=False)
                with open(path) as file:
                    return min(json.load(file)["configs_timings"], key=lambda one: one[1])[0]
        """,
    "torch/__init__.py": """
        import types
        cuda = types.SimpleNamespace(is_initialized=lambda: False, device_count=lambda: 1)
        distributed = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: ranks > 1, get_world_size=lambda: ranks)
        ranks = 1
        """,
    "torch/_inductor/__init__.py": "",
    "torch/_dynamo.py": "ended = []\non_compile_end = ended.append",
    "torch/_inductor/config.py": "",
    "torch/_inductor/runtime/__init__.py": "",
    "torch/_inductor/runtime/triton_heuristics.py": """
        import json, types
        from torch._inductor import remote_cache

        class AutotuneCache:
            remote_cache = None  # a compile worker made it, where there is no backend

            @staticmethod
            def _prepare_key(filename):
                return filename + "'s hash"

            def _setup_remote_autotune_cache(self, meta, key):
                if meta["autotune_remote_cache"]:
                    self.remote_cache = remote_cache.RemoteAutotuneCache(), key

            def read_best(self, meta, configs):
                best = self.remote_cache and self.remote_cache[0].get(self.remote_cache[1])
                return configs[best] if best is not None else None

            def save(self, best):
                self.remote_cache[0].put(self.remote_cache[1], best)

        class CachingAutotuner:
            inductor_meta = {}

            def __init__(self, filename, times):
                self.filename, self.save_cache_hook, self.tuned = filename, AutotuneCache().save, False
                self.launchers = [types.SimpleNamespace(took=one, config=types.SimpleNamespace(kwargs={"BLOCK": one}, num_warps=4, num_stages=1))
                                  for one in times]
                self.coordesc_tuner = types.SimpleNamespace(autotune=self.descend)

            def descend(self, measure, config, _):
                import copy, random
                best = copy.copy(config)
                best.kwargs, best.num_warps, self.descended = {"BLOCK": random.random()}, 8, True
                return best

            def coordinate_descent_tuning(self, launcher):
                self.descended = False
                return types.SimpleNamespace(took=launcher.took, config=self.coordesc_tuner.autotune(None, launcher.config, None))

            def autotune_to_one_config(self, wait=0.3):
                import time
                time.sleep(wait)
                self.tuned = len(self.launchers) > 1
                best = min(range(len(self.launchers)), key=lambda one: self.launchers[one].took)
                self.launchers = [self.launchers[best]]
                self.save_cache_hook(best)
        """,
    "torch/_inductor/remote_cache.py": """
        class RemoteCacheBackend:
            def get(self, key):
                return self._get(key)

            def put(self, key, data):
                self._put(key, data)

        import json

        class RemoteAutotuneCache:
            backend_override_cls = None

            def __init__(self):
                self.backend = self.backend_override_cls()

            def get(self, key):
                data = self.backend.get(key)
                return json.loads(data) if data is not None else None

            def put(self, key, value):
                self.backend.put(key, json.dumps(value).encode())

        class RemoteBundledAutotuneCache(RemoteAutotuneCache):
            pass

        class RemoteFxGraphCache(RemoteAutotuneCache):
            pass
        """,
    "helion/__init__.py": "",
    "helion/autotuner/__init__.py": "",
    "helion/autotuner/remote_cache.py": "class RemoteCacheBackend:\n    pass",
}
GROUP = """
    from fa_tune.caches import TritonCache
    def kernel(key="K", cubin=b"cubin" * 1000, compiles=[]):
        cache = TritonCache(key)
        group = cache.get_group("add.json")
        if group is None:
            compiles.append(key)
            group = {"add.json": cache.put('{"name": "add", "target": {"backend": "cuda", "arch": 90}}', "add.json", binary=False),
                     "add.cubin": cache.put(cubin, "add.cubin")}
            cache.put_group("add.json", group)
        return len(compiles), open(group["add.cubin"], "rb").read() == cubin
    """
TUNE = """
    from triton.runtime.autotuner import Autotuner, Config
    def tune(names, n=1):
        timed = []
        def clock(config):
            timed.append(config.kwargs["name"])
            return [float(len(config.kwargs["name"]))] * 3
        return Autotuner([Config(name=name) for name in names], clock).run(None, n)["name"], timed
    """


class House(Place):
    """A place with the made-up packages and with a folder of Triton's for each host."""

    def __init__(self, script=L4):
        super().__init__(script=script, space=None)
        for name, text in MADE_UP.items():
            path = os.path.join(self.folder, "packages", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            tap.write(path, textwrap.dedent(text))
        self.env["PYTHONWARNINGS"] = "ignore"  # fa_tune would register with a PyTorch that is hardly there
        self.env["PYTHONPATH"] = PACKAGE + ":" + os.path.join(self.folder, "packages")
        self.host("a")

    def host(self, name):
        self.env["TRITON_CACHE_DIR"] = os.path.join(self.folder, "triton-" + name)
        return self

    def start(self, *texts, **more):
        return subprocess.Popen([sys.executable, "-c", "".join(map(textwrap.dedent, texts))], env={**self.env, **more}, text=True,
                                cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def says(self, *texts, quiet=True, **more):
        """What a program prints, and its sentences on stderr."""
        process = self.start(*texts, **more)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert not (quiet and err), err
        return out.strip() if quiet else (out.strip(), err)

    def caches(self, *arguments, code=0, **more):
        done = subprocess.run([sys.executable, "-m", "fa_tune.caches", *arguments], env={**self.env, **more}, capture_output=True,
                              text=True, timeout=120, check=False, cwd=self.folder)
        assert done.returncode == code, done
        return done.stdout + done.stderr

    def shown(self):
        return json.loads(self.caches("list", "--json"))

    def sql(self, text):
        import sqlite3
        with contextlib.closing(sqlite3.connect(self.store)) as base:
            base.execute(text)
            base.commit()


def nothing_is_imported_before_it_is_asked_for():
    with House() as house:
        tap.equal(house.says("import fa_tune.caches, sys; print(sorted({'triton', 'torch', 'helion', 'sqlite3'} & set(sys.modules)))"), "[]")
        assert not os.path.exists(house.store)


def a_kernel_that_one_host_compiled_comes_back_whole_on_others():
    with House() as house:
        tap.equal(house.says(GROUP, "print(kernel(), kernel())"), "(1, True) (1, True)")
        tap.equal(house.host("b").says(GROUP, "print(kernel())"), "(0, True)")
        (one,) = house.shown()
        tap.equal((one["tuner"], one["name"], one["gpu"]), ("triton kernel", "add", "cuda 90"))
        tap.equal(json.loads(one["made"])["triton"], "3.6.0")
        assert one["bytes"] > 5000 and one["unix_time"] > 0


def files_that_are_cut_or_flipped_are_made_anew_with_one_sentence():
    with House() as house:
        house.says(GROUP, "kernel()")
        path = os.path.join(house.env["TRITON_CACHE_DIR"], "K", "add.cubin")
        for harm in (lambda data: data[:100], lambda data: data[:99] + b"?" + data[100:], lambda data: b""):
            data = tap.read(path, "rb")
            tap.write(path, harm(data))
            out, err = house.says(GROUP, "print(kernel())", quiet=False)
            tap.equal(out, "(0, True)")
            tap.equal(err.count("\n"), 1)
            tap.has(err, "damaged")
        house.sql("UPDATE kept SET bytes = substr(bytes, 1, 300)")
        out, err = house.host("b").says(GROUP, "print(kernel(), kernel())", quiet=False)
        tap.equal((out, err.count("\n")), ("(1, True) (1, True)", 1))
        tap.has(err, "damaged, or was not signed")
        tap.equal(house.host("c").says(GROUP, "print(kernel())"), "(0, True)")


def another_list_of_configs_times_only_what_is_new():
    with House() as house:
        tap.equal(house.says(TUNE, "print(tune(['aaa', 'bb', 'cccc', 'ddd']))"), "('bb', ['aaa', 'bb', 'cccc', 'ddd'])")
        tap.equal(house.says(TUNE, "print(tune(['aaa', 'bb', 'cccc', 'ddd']))"), "('bb', [])")
        tap.equal(house.host("b").says(TUNE, "print(tune(['aaa', 'bb', 'cccc', 'ddd', 'e']))"), "('e', ['e'])")
        tap.equal(house.says(TUNE, "print(tune(['aaa', 'cccc']), tune(['aaa', 'bb'], n=2))"), "('aaa', []) ('bb', ['aaa', 'bb'])")
        made = [json.loads(one["made"]) for one in house.shown() if one["tuner"] == "triton"]
        tap.equal(sorted(len(one["timings"]) for one in made), [2, 2, 4, 5])


def an_h100_and_an_h200_share_kernels_and_no_winner():
    with House(H100) as house:
        tap.equal(house.says(TUNE, GROUP, "print(tune(['aaa', 'bb']), kernel())"), "('bb', ['aaa', 'bb']) (1, True)")
        house.use_fake_driver(H200)  # Triton's folder is the same: a home that hosts share
        tap.equal(house.says(TUNE, GROUP, "print(tune(['aaa', 'bb']), kernel())"), "('bb', ['aaa', 'bb']) (0, True)")
        tap.equal(sorted(one["gpu"] for one in house.shown()), ["H100"] * 2 + ["H200"] * 2 + ["cuda 90"])
        tap.equal(house.says(TUNE, "print(tune(['aaa', 'bb']))", FA_TUNE_CACHES_GPU="H100"), "('bb', [])")


WAITING = """
    import os, time
    from fa_tune.caches import _values
    def value(key="k" * 8, takes=0.3):
        data = _values.get("t", key)
        if data is None:
            print("made", flush=True)
            time.sleep(takes)
            data = b"of %d" % os.getpid()
            _values.put(key, "t", "n", "g", {}, data)
        return data.decode()
    """


def of_eight_processes_one_makes_a_value_and_the_others_take_it():
    with House() as house:
        outs = [process.communicate(timeout=120)[0].split("\n") for process in
                [house.start(WAITING, "print(value())") for _ in range(8)]]
        tap.equal(sum(lines.count("made") for lines in outs), 1)
        tap.equal(len({lines[-2] for lines in outs}), 1)


def a_maker_that_is_killed_is_followed_by_another_and_no_wait_is_endless():
    with House() as house:
        maker = house.start(WAITING, "value(takes=600)")
        tap.equal(maker.stdout.readline(), "made\n")
        begun = time.monotonic()
        tap.equal(house.says(WAITING, "print(value(takes=0) == 'of %d' % os.getpid())", FA_TUNE_CACHES_WAIT="0.3"), "made\nTrue")
        assert time.monotonic() - begun < 60
        house.sql("DELETE FROM kept")
        waits = house.start(WAITING, "print(value(takes=0))")
        maker.send_signal(signal.SIGKILL)
        maker.communicate()
        tap.equal(waits.communicate(timeout=60)[0], "made\nof %d\n" % waits.pid)


def a_maker_that_failed_and_asks_again_does_not_wait_for_itself():
    again = """
        try:
            value(takes=-1)
        except ValueError:
            time.sleep = lambda seconds: print("waits")
        print(_values.get("t", "k" * 8))
        """
    with House() as house:
        tap.equal(house.says(WAITING, again, FA_TUNE_CACHES_WAIT="1").split("\n")[:2], ["made", "None"])


def ranks_of_one_job_do_not_wait_for_one_another():
    with House() as house:
        rank = "import torch; torch.ranks = 2; os.environ['TORCHELASTIC_RUN_ID'] = %r\n"
        maker = house.start(WAITING, rank % "one", "value(takes=600)")
        tap.equal(maker.stdout.readline(), "made\n")
        for job, wait, sees in (("one", "", "None"), ("other", "", "None"), ("one", "60", "None")):
            begun = time.monotonic()
            tap.equal(house.says(WAITING, rank % job, "print(_values.get('t', 'k' * 8))", FA_TUNE_CACHES_WAIT=wait), sees)
            assert time.monotonic() - begun < 30, (job, wait)
        waits = house.start(WAITING, rank % "other", "print(_values.get('t', 'k' * 8))", FA_TUNE_CACHES_WAIT="60")
        time.sleep(1)
        tap.equal(waits.poll(), None)
        maker.kill()
        maker.communicate()
        tap.equal(waits.communicate(timeout=60)[0], "None\n")


def a_value_that_this_user_did_not_sign_is_a_miss_with_a_sentence():
    with House() as house:
        house.says(WAITING, "value(takes=0)")
        other = os.path.join(house.folder, "other.key")
        asks = "print(_values.get('t', 'k' * 8))"
        out, err = house.says(WAITING, asks, quiet=False, FA_TUNE_CACHES_KEY=other)
        tap.equal((out, err.count("\n"), os.stat(other).st_mode & 0o777), ("None", 1, 0o600))
        tap.has(err, "not signed by the key in " + other)
        for column in ("key = 'k2345678'", "gpu = 'H100'", "made = '{\"a\": 1}'", "name = 'm'"):
            house.sql("DELETE FROM kept")
            house.says(WAITING, "value(takes=0)")
            house.sql("UPDATE kept SET " + column)
            tap.equal(house.says(WAITING, "print(_values.get('t', '%s'))" % ("k2345678" if "key" in column else "k" * 8), quiet=False)[0], "None")
        os.chmod(other, 0o640)
        out, err = house.says(WAITING, "_values.put('k' * 8, 't', 'n', 'g', {}, b'd'); " + asks, quiet=False, FA_TUNE_CACHES_KEY=other)
        tap.has(err, "mode 0600")
        tap.equal(out, "None")


def a_store_that_cannot_be_used_costs_a_sentence_and_no_step():
    with House() as house:
        step = (GROUP, TUNE, "print(kernel(), tune(['aaa', 'bb']))")
        house.says(WAITING, "value(takes=0)")
        asks = {"a folder that is not there": os.path.join(house.folder, "no", "store.db"),
                "a server that does not answer": "postgresql://127.0.0.1:1/none"}
        for number, store in enumerate(asks.values()):
            house.host("x%d" % number)
            out, err = house.says(*step, quiet=False, FA_TUNE_STORE=store, FA_TUNE_LOCAL_STORE=os.path.join(house.folder, "no", "local.db"))
            tap.equal(out, "(1, True) ('bb', ['aaa', 'bb'])")
            assert 0 < err.count("\n") < 12, err
        os.chmod(house.store, 0o400)
        house.host("y")
        out, err = house.says(*step, quiet=False)
        tap.equal(out, "(1, True) ('bb', ['aaa', 'bb'])")
        if os.geteuid() != 0:
            assert err


def hosts_share_a_server_and_go_on_when_it_goes_away_in_mid_tune():
    with postgres.Server() as server, House() as house:
        fleet = {"FA_TUNE_STORE": server.url(), "FA_TUNE_LOCAL_STORE": house.store}
        step = (GROUP, TUNE, "print(kernel(), tune(['aaa', 'bb']))")
        tap.equal(house.says(*step, **fleet), "(1, True) ('bb', ['aaa', 'bb'])")
        tap.equal(house.host("b").says(*step, **fleet), "(0, True) ('bb', [])")
        outs = [process.communicate(timeout=120)[0].split("\n") for process in
                [house.start(WAITING, "print(value())", **fleet) for _ in range(4)]]
        tap.equal((sum(lines.count("made") for lines in outs), len({lines[-2] for lines in outs})), (1, 1))
        maker = house.start(WAITING, "print(value(key='m', takes=3))", **fleet)
        tap.equal(maker.stdout.readline(), "made\n")
        server.crash()
        out, err = maker.communicate(timeout=120)
        tap.equal(out, "of %d\n" % maker.pid)
        assert 0 < err.count("\n") < 4, err
        out, err = house.host("c").says(*step, quiet=False, **fleet)
        tap.equal(out, "(1, True) ('bb', ['aaa', 'bb'])")


def a_full_disk_ends_no_step():
    """A tmpfs in a mount namespace of its own."""
    with House() as house:
        text = "".join(map(textwrap.dedent, (GROUP, """
            import os
            print([kernel(str(number), os.urandom(300000)) for number in range(6)])
            """)))
        disk = os.path.join(house.folder, "disk")
        os.mkdir(disk, 0o700)
        env = {**house.env, "FA_TUNE_STORE": os.path.join(disk, "store.db"), "DISK": disk}
        prefix = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs -o size=1000k,mode=700 none "$DISK" && exec "$@"', "sh"]

        def run(*arguments):
            return subprocess.run([*prefix, *arguments], env=env, capture_output=True, text=True, timeout=120, check=False, cwd=house.folder)

        if run("true").returncode != 0:
            raise tap.Skip("no namespace of our own here")
        done = run(sys.executable, "-c", text)
        tap.equal((done.returncode, done.stdout.strip()), (0, str([(number + 1, True) for number in range(6)])))
        assert 0 < done.stderr.count("\n") < 4, done.stderr


def inductors_caches_are_ours_after_one_call():
    with House() as house:
        caches = """
            import fa_tune.caches, os
            fa_tune.caches.use()
            from torch._inductor import config, remote_cache as r
            graph, tune = r.RemoteFxGraphCache.backend_override_cls(), r.RemoteAutotuneCache.backend_override_cls()
            """
        tap.equal(house.says(caches, """
            assert isinstance(graph, r.RemoteCacheBackend) and config.fx_graph_remote_cache and config.bundled_autotune_remote_cache
            print(graph.get("pt2:1::k:c1"), tune.get("pt2:1::k:c1"))
            graph.put("pt2:1::k:c1", b"pickle")
            tune.put("pt2:1::k:c1", b"{}")
            print(os.environ["TRITON_CACHE_MANAGER"])
            """), "None None\nfa_tune.caches:TritonCache")
        tap.equal(house.says(caches, "print(graph.get('pt2:1::k:c1'), tune.get('pt2:1::k:c1'))"), "b'pickle' b'{}'")
        tap.equal(sorted(one["tuner"] for one in house.shown()), ["inductor", "inductor graph"])
        house.sql("UPDATE kept SET bytes = CAST('gASVpickle' AS BLOB)")
        out, err = house.says(caches, "print(graph.get('pt2:1::k:c1'), tune.get('pt2:1::k:c1'))", quiet=False)
        tap.equal(out, "None None")
        tap.has(err, "not signed")


def of_eight_processes_one_times_an_inductor_kernel_and_descends_and_none_waits_for_what_is_never_timed():
    with House() as house:
        kernels = """
            import fa_tune.caches
            fa_tune.caches.use()
            import torch._dynamo
            from torch._inductor import remote_cache
            from torch._inductor.runtime.triton_heuristics import CachingAutotuner
            graph = remote_cache.RemoteFxGraphCache.backend_override_cls()
            tune, bundle = remote_cache.RemoteAutotuneCache.backend_override_cls(), remote_cache.RemoteBundledAutotuneCache.backend_override_cls()
            tune.get("loaded and never timed"), bundle.get("never written"), graph.get("bypassed")
            [ended() for ended in torch._dynamo.ended]
            all_of_them = [CachingAutotuner(key, times) for key, times in (("a", (3, 1, 2)), ("never", (1, 2)), ("b", (1, 2)))]
            for one in all_of_them[::2]:
                one.autotune_to_one_config()
            print([one.tuned for one in all_of_them], [one.launchers[0].took for one in all_of_them[::2]], flush=True)
            made = all_of_them[0].coordinate_descent_tuning(all_of_them[0].launchers[0]).config
            print("descended" if all_of_them[0].descended else "taken", made.kwargs["BLOCK"], made.num_warps, flush=True)
            import time
            time.sleep(WAIT)
            """
        processes = [house.start(kernels.replace("WAIT", "600"), FA_TUNE_CACHES_WAIT="100")]
        tap.equal(processes[0].stdout.readline(), "[True, False, True] [1, 1]\n")
        descended = processes[0].stdout.readline()
        tap.has(descended, "descended 0.")
        begun = time.monotonic()
        tap.equal(house.says(kernels.replace("WAIT", "0"), FA_TUNE_CACHES_WAIT="100"),
                  "[False, False, False] [1, 1]\n" + descended.replace("descended", "taken").strip())
        assert time.monotonic() - begun < 60
        processes[0].kill()
        processes[0].communicate()
        house.sql("DELETE FROM kept")
        processes = [house.start(kernels.replace("WAIT", "0")) for _ in range(8)]
        outs = sorted(process.communicate(timeout=120)[0] for process in processes)
        tap.equal(sum(out.count("True") for out in outs), 2)
        tap.equal({out.partition("] ")[2].partition("\n")[0] for out in outs}, {"[1, 1]"})
        tap.equal((sum(out.count("descended") for out in outs), len({out.split()[-2] for out in outs})), (1, 1))


def helions_winners_are_kept_and_listed_newest_first():
    with House() as house:
        helion = "from fa_tune.caches import HelionCache as C; c = C()\n"
        house.says(helion, "import time; print(c.get('a')); c.put('a', '{\"config\": 1}'); time.sleep(1.1); c.put('b', '{\"config\": 2}')")
        tap.equal(house.says(helion, "print(c.get('a'), c.get('c'), c.list(), c.list(1))"),
                  "{\"config\": 1} None ['{\"config\": 2}', '{\"config\": 1}'] ['{\"config\": 2}']")
        house.use_fake_driver(H200)
        tap.equal(house.says(helion, "print(c.get('a'), c.list())"), "None []")


def wrote(folder, name, content, age=10):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    tap.write(path, content)
    os.utime(path, (time.time() - age,) * 2)


def read(folder, name):
    return tap.read(os.path.join(folder, name), "rb")


def a_folder_goes_into_the_store_and_comes_out_elsewhere():
    with House() as house:
        one, two = (os.path.join(house.folder, name) for name in ("one", "two"))
        wrote(one, "a/k.cubin", b"\0cubin")
        wrote(one, "build.ninja", b"cd " + one.encode() + b"/a\n")
        wrote(one, "run.sh", b"#!/bin/sh\n")
        os.chmod(os.path.join(one, "run.sh"), 0o755)
        wrote(one, "rpath.so", b"\0" + one.encode())
        wrote(one, "k.lock", b"")
        wrote(one, "huge", b"\0" * (65 << 20))
        wrote(one, "a\udcff", b"")
        os.symlink("/etc/passwd", os.path.join(one, "link"))
        out = house.caches("mirror", one, "--as", "flashinfer")
        tap.has(out, "flashinfer of NVIDIA L4: 3 into the store, 0 out of it, 0 alike")
        tap.has(out, "not rpath.so: it names its folder")
        tap.has(out, "not 'a\\udcff': its name is no UTF-8")
        tap.has(out, "not huge: a value of folder, or what is said of it, is too long")
        assert one.encode() not in read(house.folder, "store.db")
        tap.has(house.caches("mirror", two, "--as", "flashinfer"), "0 into the store, 3 out of it, 0 alike\n")
        tap.equal((read(two, "a/k.cubin"), read(two, "build.ninja")), (b"\0cubin", b"cd " + two.encode() + b"/a\n"))
        tap.equal([os.access(os.path.join(two, name), os.X_OK) for name in ("run.sh", "build.ninja")], [True, False])
        tap.equal(sorted(os.listdir(two)), ["a", "build.ninja", "run.sh"])
        tap.has(house.caches("mirror", two, "--as", "flashinfer"), "0 into the store, 0 out of it, 3 alike")
        house.use_fake_driver(H200)
        tap.has(house.caches("mirror", os.path.join(house.folder, "three"), "--as", "flashinfer"), "0 out of it")


def what_is_cut_or_flipped_in_a_folder_is_mended_and_what_is_newer_stays():
    with House() as house:
        one, two = (os.path.join(house.folder, name) for name in ("one", "two"))
        for name in ("cut", "flipped", "newer", "gone", "older"):
            wrote(one, name, b"content of " + name.encode())
        house.caches("mirror", one, "--as", "x")
        house.caches("mirror", two, "--as", "x")
        same = os.stat(os.path.join(two, "flipped")).st_mtime_ns
        wrote(two, "cut", b"content", age=5)
        wrote(two, "flipped", b"c0ntent of flipped")
        os.utime(os.path.join(two, "flipped"), ns=(same, same))
        wrote(two, "newer", b"other", age=5)
        wrote(two, "older", b"other", age=500)
        os.unlink(os.path.join(two, "gone"))
        tap.has(house.caches("mirror", two, "--as", "x"), "1 into the store, 4 out of it, 0 alike")
        tap.equal([read(two, name) for name in ("cut", "flipped", "older", "gone", "newer")],
                  [b"content of " + name for name in (b"cut", b"flipped", b"older", b"gone")] + [b"other"])
        tap.has(house.caches("mirror", one, "--as", "x"), "1 out of it, 4 alike")
        house.sql("UPDATE kept SET made = replace(made, '\"path\": \"gone\"', '\"path\": \"../gone\"')")
        house.sql("UPDATE kept SET made = '{' WHERE made LIKE '%\"cut\"%'")
        three = os.path.join(house.folder, "three")
        out = house.caches("mirror", three, "--as", "x")
        tap.has(out, "not ../gone")
        tap.equal(sorted(os.listdir(three)), ["flipped", "newer", "older"])
        os.makedirs(os.path.join(two, "below", "again"))
        wrote(two, "below/again/k", b"k")
        house.caches("mirror", two, "--as", "y")
        os.mkdir(os.path.join(house.folder, "elsewhere"))
        os.mkdir(os.path.join(house.folder, "four"))
        os.symlink(os.path.join(house.folder, "elsewhere"), os.path.join(house.folder, "four", "below"))
        tap.has(house.caches("mirror", os.path.join(house.folder, "four"), "--as", "y"), "not below/again/k: it lies outside")
        tap.equal(os.listdir(os.path.join(house.folder, "elsewhere")), [])
        assert not os.path.exists(os.path.join(house.folder, "gone"))


def files_that_change_while_they_are_read_are_whole_or_left():
    with House() as house:
        one = os.path.join(house.folder, "one")
        wrote(one, "steady", b"s" * 1000)
        writer = house.start("""
            import os, sys
            data = [b"a" * 300000, b"b" * 300000]
            os.makedirs("one", exist_ok=True)
            print("ready", flush=True)
            while True:
                for content in data:
                    with open("one/moving", "wb") as file:
                        for at in range(0, len(content), 1000):
                            file.write(content[at:at + 1000])
                            file.flush()
                    with open("one/part.fa", "wb") as file:
                        file.write(content)
                    os.replace("one/part.fa", "one/renamed")
            """)
        writer.stdout.readline()
        mirrors = [subprocess.Popen([sys.executable, "-m", "fa_tune.caches", "mirror", one], env=house.env, cwd=house.folder,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
        outs = [mirror.communicate(timeout=120)[0] for mirror in mirrors]
        writer.kill()
        writer.communicate()
        two = os.path.join(house.folder, "two")
        house.caches("mirror", two, "--as", "one")
        assert all(mirror.returncode == 0 for mirror in mirrors), outs
        tap.equal(read(two, "steady"), b"s" * 1000)
        for name in set(os.listdir(two)) - {"steady"}:
            assert read(two, name) in (b"a" * 300000, b"b" * 300000), (name, outs)


def a_signed_file_carries_all_values_to_another_store():
    with House() as house:
        house.says(GROUP, TUNE, "kernel(); tune(['aaa', 'bb'])")
        keys = sorted(one["key"] for one in house.shown())
        tap.has(house.caches("pack", "values"), "3 values in values: %d bytes" %
                os.path.getsize(os.path.join(house.folder, "values")))
        key = os.path.join(house.folder, ".config", "fa-tune", "caches.key")
        image = {"FA_TUNE_STORE": os.path.join(house.folder, "image.db"), "FA_TUNE_CACHES_KEY": os.path.join(house.folder, "image.key")}
        tap.has(house.caches("unpack", "values", code=1, **image), "not signed by the key in " + image["FA_TUNE_CACHES_KEY"])
        tap.has(house.caches("unpack", "values", "--key", key, **image), "3 values of values went into the store")
        few = "from fa_tune.caches import __main__ as m\nm.MOST = 1000\nprint(m.main(['unpack', 'values']))"
        tap.equal(house.says(few, quiet=False), ("1", "fa_tune.caches: values holds more than 1000 bytes of values: nothing is taken\n"))
        house.env.update(image)
        tap.equal(sorted(one["key"] for one in house.shown()), keys)
        tap.equal(house.host("b").says(GROUP, TUNE, "print(kernel(), tune(['aaa', 'bb']))"), "(0, True) ('bb', [])")
        data = read(house.folder, "values")
        for harm in (data[:-1], data[:200] + b"?" + data[201:], data[:30], b"", b"pickle"):
            wrote(house.folder, "harmed", harm)
            out = house.caches("unpack", "harmed", "--key", key, code=1)
            assert out.startswith("fa_tune.caches: harmed ") and out.count("\n") == 1, out


def what_is_kept_is_listed_and_forgotten():
    with House(H100) as house:
        house.says(GROUP, TUNE, "kernel(); tune(['aaa', 'bb'])")
        tap.has(house.caches("list"), "triton kernel   add  cuda 90  20")
        tap.has(house.caches("list", "--gpu", "H100"), "2 values of other tuners, ")
        for verb in "list", "rm":
            tap.has(house.caches(verb, "--gpu", "H999", code=1), "H999")
        tap.has(house.caches("rm", code=2) + house.caches("rm", "--gpu", "H100", "--dry-run"), "--gpu --all is required\nwould forget 2 values")
        tap.equal(len(house.shown()), 3)
        tap.has(house.caches("rm", "--gpu", "H100"), "forgot 2 values of other tuners, ")
        tap.equal([(one["tuner"], one["name"], one["gpu"]) for one in house.shown()], [("triton kernel", "add", "cuda 90")])
        tap.has(house.caches("rm", "--all"), "forgot 1 value")
        tap.equal(house.shown(), [])
        tap.equal(house.host("b").says(GROUP, "print(kernel())"), "(1, True)")


# ---- the page ----
def the_page_of_it_works_as_it_is_pasted():
    """The blocks of docs/caches.md, in their order: train.py asks for what each has set up."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", tap.read(os.path.join(SOURCE, "docs", "caches.md")), re.M | re.S)
    tap.equal([kind for kind, _ in blocks], ["bash", "python", "bash", "sh"])
    assert all(text.count("\n") == 3 for _, text in blocks)
    with House() as house:
        wrote(house.folder, "train.py", textwrap.dedent("""
            import importlib, os
            for name in ("TRITON_CACHE_MANAGER", "HELION_REMOTE_CACHE_BACKEND"):
                if name in os.environ:
                    module, _, thing = os.environ[name].replace(":", ".").rpartition(".")
                    print(name, getattr(importlib.import_module(module), thing).__bases__[0].__name__)
            """).encode())
        wrote(house.folder, ".cache/flashinfer/a.json", b"{}")
        os.makedirs(os.path.join(house.folder, "bin"))
        os.symlink(sys.executable, os.path.join(house.folder, "bin", "python"))
        env = {**house.env, "PATH": os.path.join(house.folder, "bin") + ":" + BUILD + ":" + house.env["PATH"]}

        def pasted(text):
            done = subprocess.run(["sh", "-ec", text], env=env, cwd=house.folder, capture_output=True, text=True, timeout=120, check=True)
            return done.stdout

        tap.equal(pasted(blocks[0][1]), "TRITON_CACHE_MANAGER FileCacheManager\n")
        house.says("import torch; torch.compile = lambda model, mode: model; model = 1\n", blocks[1][1])
        tap.equal(pasted(blocks[2][1]), "HELION_REMOTE_CACHE_BACKEND RemoteCacheBackend\n")
        tap.has(pasted(blocks[3][1]), "1 value in values.fav: ")


# ---- the real Triton ----
def real(house):
    packages = os.environ.get("FA_TEST_PACKAGES", "")
    if not os.path.isdir(os.path.join(packages, "triton")):
        raise tap.Skip("FA_TEST_PACKAGES names no folder with Triton")
    house.env["PYTHONPATH"] = PACKAGE + ":" + packages
    house.env.update(TRITON_CACHE_MANAGER="fa_tune.caches:TritonCache", TRITON_DEFAULT_FP_FUSION="1", TRITON_CACHE_AUTOTUNING="1")
    tap.write(os.path.join(house.folder, "add.py"), textwrap.dedent(REAL))


REAL = """
    import hashlib, types
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.runtime import driver
    from triton.runtime.autotuner import Autotuner

    @triton.jit
    def add(x, y, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)

    def kernel():
        source = ASTSource(add, {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}, constexprs={"BLOCK": 128})
        return hashlib.sha256(triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]).hexdigest()

    timed = []
    def clock(call, quantiles):
        config = dict(zip(call.__code__.co_freevars, (cell.cell_contents for cell in call.__closure__)))["config"]
        timed.append(config.kwargs["BLOCK"])
        return [1 / config.kwargs["BLOCK"]] * 3

    def tune(*blocks):
        driver.set_active(types.SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", 90, 32), get_current_device=lambda: 0))
        add.run = lambda *args, **kwargs: None
        tuned = Autotuner(add, add.arg_names, [triton.Config({"BLOCK": block}) for block in blocks], ["n"], None, None, do_bench=clock)
        tuned.run(1, 2, 64, grid=(1,))
        return tuned.best_config.kwargs["BLOCK"], timed
    """


def the_real_triton_takes_kernels_and_timings_from_the_store():
    with House(H200) as house:
        real(house)
        one = house.says("import add; print(add.kernel())")
        kernels = "import triton, add; triton.knobs.compilation.listener = lambda **is_: print(is_['cache_hit']); print(add.kernel())"
        tap.equal(house.host("b").says(kernels), "True\n" + one)
        tap.equal(house.says("import add; print(add.tune(64, 128, 256))"), "(256, [64, 128, 256])")
        tap.equal(house.host("c").says("import add; print(add.tune(64, 128, 256))"), "(256, [])")
        tap.equal(house.says("import add; print(add.tune(64, 128, 256, 512))"), "(512, [512])")
        house.use_fake_driver(H100)
        tap.equal(house.says("import add; print(add.tune(64, 128, 256))"), "(256, [64, 128, 256])")


def the_real_triton_lives_with_damage_and_many_compilers_at_once():
    with House(H200) as house:
        real(house)
        processes = [house.start("import add; print(add.kernel())") for _ in range(4)]
        outs = [process.communicate(timeout=300) for process in processes]
        tap.equal(len({out for out, _ in outs}), 1)
        assert all(process.returncode == 0 for process in processes), outs
        folder = house.env["TRITON_CACHE_DIR"]
        (cubin,) = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names if name.endswith(".cubin")]
        with open(cubin, "r+b") as file:
            file.truncate(100)
        out, err = house.says("import add; print(add.kernel())", quiet=False)
        tap.equal(out + "\n", outs[0][0])
        tap.has(err, "damaged")
        house.sql("UPDATE kept SET bytes = substr(bytes, 2)")
        out, err = house.host("b").says("import add; print(add.kernel())", quiet=False)
        tap.equal(out + "\n", outs[0][0])
        tap.has(err, "damaged, or was not signed")


tap.main()
