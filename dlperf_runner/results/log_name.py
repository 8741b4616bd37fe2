"""Settings in the path of a log: text in, values out. This module reads no file.

bz128/4n8g/rn50_b128_fp32_1.log         the published trees
tf_gpu8_amp_bs256.txt                   the NGC report
tf_rn50_b256_amp_1n8g_v100_2022-11.log  the same words in another order, and others
ResNet50-8gpu-amp-bs256.log             with other signs between them
rn50_bs128_1n1g_fp32/oneflow.log        in the name of the directory
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import PurePath
from typing import Any, NamedTuple

from ..catalog.log_pattern import names
from ..core.case import Topology
from ..core.linear import compiled

# train.o4711 is the output of a job of PBS or Grid Engine, train.o4711.2 that of an array.
_FILE = re.compile(
    r"(?P<stem>.+?)(?P<kind>\.(?:log|txt|out|err|jsonl?|[oe](?P<job>\d{1,12}(?:[-.]\d{1,9})?)))?"
    r"(?:\.gz)?",
    re.IGNORECASE,
)
# rn50.log.node2 is the log of another node of that run, rn50.log.1 an older one.
_ANOTHER = re.compile(r"\.(log|txt|out|err)\.", re.IGNORECASE)
_EXTENSION = re.compile(r"\.[A-Za-z]\w{0,11}$", re.ASCII)
_BATCH = re.compile(r"bs?(\d{1,9})", re.ASCII)
_GLOBAL_BATCH = re.compile(r"gbs([1-9]\d{0,8})", re.ASCII)
_VERSION = re.compile(r"v\d")
_DEVICES = re.compile(r"gpus?(\d{1,9})|(\d{1,9})gpus?", re.ASCII)
# A GPU or a batch size? A batch size is bs200, or the log states it.
_GPU_OR_BATCH = ("b100", "b200", "b300")
# 2nodes, 2-node, multi-node, nodes2, 8gpus-per-node. node2 may be that node.
_NODES = re.compile(
    r"(?<![^\W_])(?:(?P<count>\d{1,9}|single|one|two|four|eight|many|multi|per)[-_.\s]?"
    r"(?:node|host|machine)s?|n?nodes[-_.\s=]?(?P<number>\d{1,9})|node[-_.\s]?\d{1,9})"
    r"(?![^\W_])",
    re.ASCII,
)
# gpus8 behind nodes2: those of each node, as options of launchers are called.
_OF_NODE = re.compile(r"(?<![^\W_])n?gpus[-_.\s=]?([1-8])(?![^\W_])", re.ASCII)
# N2_G8, and a directory 2x8.
_NODES_AND_DEVICES = re.compile(
    r"(?<![^\W_])n([1-9]\d{0,5})[-_]?[gc]([1-9]\d{0,5})(?![^\W_])", re.ASCII
)
PRODUCT = re.compile(r"([1-9]\d{0,5})x([1-8])", re.ASCII)
_NODES_BEFORE_DEVICES = re.compile(
    r"(?<![^\W_])(?P<count>\d{1,9})n(?=[-_.\s]\d{1,9}gpus?)", re.ASCII
)
_NUMBERS = {"single": "1", "one": "1", "two": "2", "four": "4", "eight": "8"}
# 8xA100, 2x8xA100 and a100x8, if that is an accelerator.
_GPUS = re.compile(
    r"(?<![^\W_])(?:(?P<nodes>\d{1,6}x)?(?P<count>\d{1,6})x(?P<gpu>[a-z]{1,4}\d{1,4}[a-z]?)"
    r"|(?P<gpu_before>[a-z]{1,4}\d{1,4}[a-z]?)x(?P<count_behind>\d{1,6}))(?![^\W_])",
    re.ASCII,
)
# 8xb32 of OpenMMLab: the batch of each device. The devices are those for which the configuration
# was made, and the run may have had others.
_BATCH_OF_EACH = re.compile(r"(?<![^\W_])[1-9]\d{0,5}x(b[1-9]\d{0,8})(?![^\W_])", re.ASCII)
# Names of settings, as Hydra writes them into directories: model=rn50,bs=128,gpus=8,amp=true.
_KEY = re.compile(
    r"(?<![^\W_])(?:(?:model|arch|network|precision|dtype|accelerator)="
    r"|(amp)=(?:true|on|1)(?![^\W_])|amp=(?:false|off|0)(?![^\W_]))",
    re.IGNORECASE,
)
_SET = re.compile(r"(?<![^\W_])[A-Za-z]{1,32}=[^\s,_/]*")
# Other spellings of settings, and the words for them. no-amp is not amp.
_SPELLINGS = [
    (re.compile(rf"(?<![^\W_]){pattern}(?![^\W_])", re.ASCII), words)
    for pattern, words in (
        (r"(no|non|not|without)[-_.\s](amp|tf32|fp8|[bf][fp]16)", r"\1\2"),
        (r"(amp|tf32|fp8|[bf][fp]16)[-_.\s](?:off|no|false|disabled)", r"no\1"),
        (
            r"(?:global|total)[-_.\s]?b(?:sz?|atch)(?:[-_.\s]?size)?[-_.\s=]?([1-9]\d{0,8})",
            r"gbs\1",
        ),
        (r"bs?([1-9]\d{0,8})[-_.\s](?:global|total)", r"gbs\1"),
        # DeepSpeed's train_batch_size is that of all devices.
        (
            r"(?<!train[-_.])(?<!eval[-_.])(?:bsz?|batch[-_.\s]?size)[-_.\s=]?([1-9]\d{0,8})",
            r"bs\1",
        ),
        (r"batch([1-9]\d{1,4})", r"bs\1"),
        (r"bfloat16", "bf16"),
        (r"float(16|32|64)", r"fp\1"),
        (r"mixed[-_.\s]?precision", "amp"),
        # gpus_4_5 are those two.
        (r"(?:n?gpus|ngpu)[-_.\s=]?([1-9]\d{0,8})(?![-_,.]?\d)", r"\1gpus"),
        (r"([1-9]\d{0,8})(?:card|npu|device)s?", r"\1gpus"),
        # resnet_50_gpu and rtx_4090_gpu are no numbers of devices.
        (r"(?:(1)[-_\s]gpu|([1-9]\d{0,3})[-_\s](?:gpu|card|npu|device)s)", r"\1\2gpus"),
    )
]
_NUMBERED = re.compile(
    r"(?:run|rep|repeat|try|trial|attempt|seed)[-_]?(\d{1,9})", re.ASCII | re.IGNORECASE
)
_PIECES = re.compile(r"[-.]")
_REPEAT = re.compile(r"\d{1,9}", re.ASCII)
_OF_LOGS = re.compile(r"^logs?[-_]|[-_]logs?$")
# 8_gpu, ngpu=8 and num_gpus_8, besides what names of files may have.
_DEVICES_DIRECTORY = re.compile(
    r"(\d{1,9})[-_ ]?gpus?|(?:ngpus?|num_gpus)[-_=]?(\d{1,9})", re.ASCII | re.IGNORECASE
)
_BATCH_DIRECTORY = re.compile(r"bz(\d{1,9})", re.ASCII)
_DATE = r"(?:19|20)\d\d([-_]?)[01]\d\1[0-3]\d"
_TIME = r"[0-2]\d[-_.:h]?[0-5]\d(?:[-_.:m]?[0-5]\ds?)?(?:[-_.,]?\d{1,9})?z?"
# A directory of a repeat: a run, a job, a date, or a time of day within one. With dots alone, it
# may be a version: 23.02.07.
_OF_REPEAT = re.compile(
    rf"(?:(?:run|job|slurm)[-_]?)?(?:{_DATE}(?:[-_.t ]?{_TIME})?|[0-2]\d[-_:][0-5]\d[-_:][0-5]\d)"
    r"|(?:job|slurm)[-_]?\d{1,18}",
    re.ASCII | re.IGNORECASE,
)
# Logs of the ranks of one run, as Paddle, torchrun (log_dir) and Open MPI (output-filename) name
# them: workerlog.0, attempt_0/0/stdout.log, rank.0/stdout, and rank0.log. Those of its nodes:
# node1.log.
_RANK = re.compile(
    r"/(?:workerlog\.|rank[-_.]?|(?P<node>node[-_.]?)|attempt_\d{1,9}/)(?P<rank>\d{1,6})"
    r"(?:/std(?:out|err))?(?:\.(?:log|txt|out|err))?(?:\.gz)?$",
    re.ASCII,
)
_JOB = re.compile(r"\d{6,18}", re.ASCII)

_WORD = re.compile(r"[^\W_]+")
# What the names of directories and logs of one table differ in without being of another machine or
# setting: sizes, repeats, dates, and numbers of jobs.
_SIZE = r"(?:\d+x?|x\d+|one|two|four|eight|single|multi|many|all|per)"
_OF_WHAT = (
    r"(?:n?gpus?|npus?|cards?|devices?|nodes?|hosts?|machines?|procs?|ranks?|workers?|n|g|np)"
)
_REPEATED = (
    r"(?:run|r|rep|repeat|try|trial|attempt|seed|part|job|slurm|logs?|train(?:ing|er)?"
    r"|(?:std)?(?:out|err)|output|workerlog|screenlog|nohup|console|terminal|result|state|main)s?"
)
_TELLS_NOTHING = rf"(?:{_SIZE}|{_OF_WHAT})*|{_REPEATED}\d*|\d{{8}}t\d+z?"


BY_NAME = "the file name"


class PathWords(NamedTuple):
    """The settings in a path; None where it has none. `first` are the words before the first
    setting; in the published layouts they name what ran. `others` are the words behind it. `nodes`:
    their number, if a name of the path says it without that of the devices. `by`:
    whose name that is, the file's or, if it says no settings, that of a directory.
    `topology_directory` and `batch_directories` say a topology and a batch size alone;
    `accelerator_directory` names it and what it says; `model_directory` is named after a model.
    `batches` and `precisions`: those of directories that say nothing but settings, and which."""

    first: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    batch_size: int | None = None
    global_batch_size: int | None = None
    precision: str | None = None
    topology: Topology | None = None
    devices: int | None = None
    nodes: int | None = None
    accelerator: str | None = None
    repeat: int | None = None
    topology_directory: str | None = None
    batch_directories: tuple[str, ...] = ()
    accelerator_directory: tuple[str, str] | None = None
    model_directory: str | None = None
    batches: tuple[tuple[int, str], ...] = ()
    precisions: tuple[tuple[str, str], ...] = ()
    by: str = BY_NAME

    @property
    def settings(self) -> int:
        """The number of settings."""
        size = self.topology or self.devices
        return sum(value is not None for value in (self.batch_size, self.precision, size))


def stem_of(name: str) -> str | None:
    """The name of a log without its extensions; None if no log has such a name."""
    match = _FILE.fullmatch(name)
    if match is None or _ANOTHER.search(match["stem"]):
        return None
    has_extension = match["kind"] is None and _EXTENSION.search(match["stem"])
    return None if has_extension else match["stem"]


def job_of(name: str) -> str:
    """The number of a job that is the extension of a log's name; empty if none is."""
    match = _FILE.fullmatch(name)
    return (match and match["job"]) or ""


def words_of(stem: str, directories: Sequence[str]) -> PathWords:
    """The settings in the stem of a log's name and in its directories, from the nearest up. Raises
    ValueError if the name contradicts itself."""
    above, repeat, of_directories = _of_directories(tuple(directories))
    words = _words_of_name(stem, BY_NAME)
    if above and not words.settings:
        first = tuple(word for word in above.first if word not in words.first)
        number = above.repeat if words.repeat is None else words.repeat
        words = above._replace(first=(*first, *words.first), repeat=number)
    for field, alone in (("precision", "precisions"), ("batch_size", "batches")):
        values = {value for value, _ in of_directories[alone]}
        if words.settings and getattr(words, field) is None and len(values) == 1:
            words = words._replace(**{field: values.pop()})  # resnet50/fp32/bs128/8gpu.log
    if words.devices is None and words.topology is None:
        words = words._replace(devices=next(_devices_alone(directories), None))
    words = _with_nodes(words, (stem, *directories))
    number = repeat if words.repeat is None else words.repeat
    words = words._replace(repeat=number, **of_directories)
    products = set(filter(PRODUCT.fullmatch, directories))
    if len(products) == 1 and not (words.topology_directory or words.topology or words.devices):
        words = words._replace(topology_directory=products.pop())
    return words


def _devices_alone(directories: Sequence[str]) -> Iterator[int]:
    """The numbers of devices of the directories that say nothing else but an accelerator: 8gpus and
    8xA100, but not gpu3, which may be that device. Above one with a topology, they may be those of
    the machine."""
    for directory in takewhile(lambda name: not _topology_of_directory(name), directories):
        if size := _DEVICES_DIRECTORY.fullmatch(directory):
            yield int(size[1] or size[2])
            continue
        if any(map(_topology_of_directory, directories)):
            continue  # 1n4g/8xA100: the machine
        words = _words_of_directory(directory)
        is_alone = words and not words.first and not words.others and words.settings == 1
        if words and is_alone and words.devices and not directory.lower().startswith("gpu"):
            yield words.devices


def _with_nodes(words: PathWords, names_of_path: Iterable[str]) -> PathWords:
    """The words without devices if a name speaks of nodes, because they may be those of a node or
    of all. A number of nodes makes a topology of devices per node, and of those of one node."""
    text = "/".join(names_of_path).lower()
    matches = [*_NODES.finditer(text)]
    counted = [match["number"] or match["count"] for match in matches]
    counted += [match["count"] for match in _NODES_BEFORE_DEVICES.finditer(text)]
    if not counted:
        return words
    of_node = {match[1] for match in _OF_NODE.finditer(text)}
    if len(of_node) == 1 and {*counted} == {match["number"] for match in matches}:
        topology = topology_of(f"{counted[0]}n{of_node.pop()}g") if len({*counted}) == 1 else None
        words = words._replace(topology=words.topology or topology)
    counts = {_NUMBERS.get(count, count) for count in counted} - {"per"}
    nodes = int(*counts) if len(counts) == 1 and str(*counts).isdecimal() else None
    words = words._replace(nodes=nodes or None)
    if words.devices is None:
        return words
    topology = words.topology
    if counts == {"1"} or (len(counts) == 1 and "per" in counted):
        topology = topology or topology_of(f"{counts.pop()}n{words.devices}g")
    return words._replace(devices=None, topology=topology)


def directories_above(parts: Sequence[str]) -> tuple[str, ...]:
    """The directories of a file, from the nearest up. Short words such as t4 above the nearest are
    as likely tests or trials as accelerators, and are left out."""
    others = (n for n in parts[-2::-1] if len(n) > 3 or n.lower() not in names().accelerators)
    return *parts[-1:], *others


@functools.lru_cache(maxsize=4096)  # the directories of a tree have logs of the same names
def _words_of_name(name: str, by: str) -> PathWords:
    settings: dict[str, Any] = {}
    first: list[str] = []
    others: list[str] = []
    words = _split(name.lower())
    for at, word in enumerate(words):
        setting = _setting(word, is_last=at == len(words) - 1 > 0)
        if setting is None:
            (others if settings else first).append(word)
            continue
        field, value = setting
        model = next((w for w in reversed(first) if not _VERSION.fullmatch(w)), "")
        if field == "batch_size" and not settings and names().has_size(model, word):
            first[-1] += f"-{word}"  # vit-b16 is a model, and efficientnet_v1_b4
            continue
        if settings.setdefault(field, value) != value and {value, settings[field]} != {
            "amp",
            "fp16",
        }:
            raise ValueError(f"{by} says two values of {field}: {settings[field]}, {value}")
    return PathWords(tuple(first), tuple(others), by=by, **settings)


def _split(name: str) -> list[str]:
    """The words between _, blanks, commas and +. One with a setting between - or . is several."""
    words: list[str] = []
    name = _KEY.sub(r"_\1_", name)
    for pattern, spelling in _SPELLINGS:
        name = pattern.sub(spelling, name)
    # What is set to a value of unknown meaning, such as lr=0.1, is no model: behind the rest.
    for word in _SET.findall(name):
        if not setting_of(word.replace("=", "")):
            name = f"{name.replace(word, '', 1)}_{word}"
    name = name.replace("=", "")
    name = _BATCH_OF_EACH.sub(r"_\1_", name)
    name = _NODES_AND_DEVICES.sub(r"_\1n\2g_", _GPUS.sub(_apart, name))
    for part in re.split(r"[_\s,]+|\+(?=[^\W_])", _NODES.sub(r"_\g<0>_", name)):
        word = part.strip("-.()[]")
        pieces = _PIECES.split(word)
        if len(pieces) < 2 or setting_of(word) or not any(map(setting_of, pieces)):
            words.append(word)
            continue
        together: list[str] = []
        for piece in pieces:
            if setting_of(piece) or (piece.isdecimal() and piece is pieces[-1]):
                words += ["-".join(together), piece]
                together = []
            else:
                together.append(piece)
        words.append("-".join(together))
    return [word for word in words if word]


def _apart(match: re.Match[str]) -> str:
    """The number of accelerators and their name as two words, if it is one."""
    gpu = match["gpu"] or match["gpu_before"]
    is_known = gpu in names().accelerators or gpu in _GPU_OR_BATCH
    if not is_known:
        return match[0]
    if match["nodes"]:
        return f"_{match['nodes'][:-1]}n{match['count']}g_{gpu}_"
    return f"_{match['count'] or match['count_behind']}gpus_{gpu}_"


def setting_of(word: str) -> tuple[str, object] | None:
    """The field and the value that a word gives, wherever it stands."""
    return _setting(word, is_last=False)


@functools.lru_cache(maxsize=1024)  # the logs of a tree share their directories
def _of_directories(
    directories: Sequence[str],
) -> tuple[PathWords | None, int | None, dict[str, Any]]:
    """The settings in the nearest directory that is named like a run, the repeat in a directory,
    and the fields of PathWords that the directories give."""
    topology = next(filter(_topology_of_directory, directories), None)
    named = [words for words in map(_words_of_directory, directories) if words]
    likely = [words for words in named if words.settings + (words.repeat is not None) > 1]
    alone = [words for words in named if not words.first and not words.others]
    has_nodes = any(_NODES.search(name.lower()) for name in directories)
    has_product = any(map(PRODUCT.fullmatch, directories))
    if topology or has_product or has_nodes or next(_devices_alone(directories), None):
        # Beside a size, one more setting names a run.
        likely += [words for words in named if words.batch_size or words.precision]
    # r100_1n8g, and resnet50_8gpu; h100box_8gpu may be a machine.
    likely += [w for w in named if w.first and (w.topology or (w.devices and _has_model(w)))]
    above = next(iter(likely), None)
    repeat = next((int(m[1]) for m in map(_NUMBERED.fullmatch, directories) if m), None)
    return (
        above,
        repeat,
        {
            "topology_directory": topology,
            "model_directory": next(filter(None, map(_model_of, directories)), None),
            "batch_directories": tuple(filter(_BATCH_DIRECTORY.fullmatch, directories)),
            "accelerator_directory": next(_accelerators(directories), None),
            "batches": tuple((w.batch_size, w.by) for w in alone if w.batch_size),
            "precisions": tuple((w.precision, w.by) for w in alone if w.precision),
        },
    )


def _has_model(words: PathWords) -> bool:
    return any(map(names().is_model, words.first))


def _words_of_directory(directory: str) -> PathWords | None:
    try:
        return _words_of_name(directory, f"the directory {directory}")
    except ValueError:
        return None  # a date, or another name of unknown meaning


@functools.lru_cache(maxsize=1024)  # and the words of their names
def _setting(word: str, *, is_last: bool) -> tuple[str, object] | None:
    if word in _GPU_OR_BATCH:
        return None
    if match := _BATCH.fullmatch(word):
        return "batch_size", int(match[1])
    if match := _GLOBAL_BATCH.fullmatch(word):
        return "global_batch_size", int(match[1])
    if match := _DEVICES.fullmatch(word):
        return "devices", int(match[1] or match[2])
    if topology := topology_of(word):
        return "topology", topology
    if word in names().precisions:
        return "precision", word
    if word in names().accelerators:
        return "accelerator", word if word == "cpu" else word.upper()
    if match := _NUMBERED.fullmatch(word):
        return "repeat", int(match[1])
    if is_last and _REPEAT.fullmatch(word):
        return "repeat", int(word)
    return None


def _accelerators(directories: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The directories named after an accelerator, such as V100_LOG, and its name."""
    for directory in directories:
        word = _OF_LOGS.sub("", directory.lower())
        if word in names().accelerators:
            yield directory, word if word == "cpu" else word.upper()


@functools.lru_cache(maxsize=1024)
def telling_words(text: str) -> tuple[str, ...]:
    """The words of a name that may be of another machine or setting, such as xla or h100box."""
    # Whoever named the log chose how often these repeat, which only RE2 reads in linear time.
    nothing = compiled(_TELLS_NOTHING)
    words = (re.sub(r"\d{4,}", "", word) for word in _WORD.findall(text.lower()))
    return tuple(word for word in words if not nothing.fullmatch(word))


@functools.lru_cache(maxsize=1024)
def topology_of(text: str) -> Topology | None:
    """The topology that a word like 4n8g names."""
    try:
        return Topology.parse(text)
    except ValueError:
        return None


@functools.lru_cache(maxsize=1024)
def _topology_of_directory(directory: str) -> Topology | None:
    """The topology that a directory says alone: 4n8g, N4_G8 or N4C8."""
    match = _NODES_AND_DEVICES.fullmatch(directory.lower())
    return Topology(int(match[1]), int(match[2])) if match else topology_of(directory.lower())


def topology_of_directory(directory: str) -> Topology | None:
    """The topology that a directory says alone, or may say, as 4x8 where nothing else says one."""
    match = PRODUCT.fullmatch(directory)
    return Topology(int(match[1]), int(match[2])) if match else _topology_of_directory(directory)


def _model_of(directory: str) -> str | None:
    """The model that a directory is named after: llama3-8b of llama3_8b."""
    name = _OF_LOGS.sub("", directory.lower()).replace("_", "-")
    is_model = names().is_model(name) and not any(map(setting_of, _PIECES.split(name)))
    return name if is_model else None


def rank_of(path: PurePath, topology: Topology) -> tuple[str, int] | None:
    """The logs that a log named after a rank or a node of its run alone is one of, as its path with
    *, and the rank."""
    text = f"/{path.as_posix()}"
    if (match := _RANK.search(text)) is None:
        return None
    of_nodes = topology.nodes + 1 if topology.nodes > 1 else 0
    if int(match["rank"]) >= (of_nodes if match["node"] else topology.world_size):
        return None
    return f"{text[: match.start('rank')]}*{text[match.end('rank') :]}", int(match["rank"])


def is_of_other_rank(path: PurePath) -> bool:
    """True if a log is named after a rank of its run that is not the first one."""
    match = _RANK.search(f"/{path.as_posix()}")
    return match is not None and not match["node"] and int(match["rank"]) > 0


def is_of_repeat(directory: str) -> bool:
    """True if a directory is named after a run, a job or a date alone: seed_42, 482110,
    2025-05-01_10-22-33. Short and round numbers such as 50257 and 131072 may be sizes."""
    if _NUMBERED.fullmatch(directory) or _OF_REPEAT.fullmatch(directory):
        return True
    is_job = _JOB.fullmatch(directory) is not None
    return is_job and int(directory) % 100 > 0 and int(directory) % 1024 > 0


def size_of(directory: str) -> int:
    """The batch size that a directory like bz128 names."""
    return int(directory.removeprefix("bz"))
