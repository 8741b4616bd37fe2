"""The reader: blocks of whole lines, whatever bytes a log has and wherever it is cut."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from read_logs import LABELS, TAG, Step, pieces, read

from dlperf_runner import logs
from dlperf_runner.logs import Header, LineError
from dlperf_runner.logs.reader import LONGEST, blocks
from dlperf_runner.logs.records import CUT


def test_ranks_that_interleave_are_taken_apart() -> None:
    line = "[1,0]<stdout>:INFO:root:Epoch[0] Batch[3]\tSp[1,1]<stdout>:WARN x[1,0]<stdout>:eed: "
    (block,) = blocks([f"{line}5.0 samples/sec\n".encode()], [b"Batch"])
    assert block.data.decode().split("\n") == [
        "INFO:root:Epoch[0] Batch[3]\tSpeed: 5.0 samples/sec",
        "WARN x",
    ]
    assert (block.numbers, block.ranks) == ((1, 1), ("0", "1"))
    assert read("gluoncv_horovod", f"{line}5.0 samples/sec\n")[1] == [Step(3, 5.0, 1)]


def test_the_rank_that_prints_the_first_step_is_read() -> None:
    lines = ["[1,1]<stdout>:world_size=2"]
    for step in (1, 2):
        line = f"Epoch[0] Batch[{step}]\tSpeed: {{}} samples/sec"
        lines += [f"[1,3]<stdout>:{line.format('5.0')}", f"[1,0]<stdout>:{line.format('5.1')}"]
    for size in (None, 1, 50):
        headers, found = read("gluoncv_horovod", "\n".join(lines) + "\n", size)
        assert headers == [Header(1, world_size=2)]
        assert found == [Step(1, 5.0, 2), Step(2, 5.0, 4)]


def test_lines_of_a_later_epoch_between_those_of_the_first_are_counted() -> None:
    line = "Epoch[{}] Batch[{}]\tSpeed: 5.5 samples/sec\n"
    content = "".join(line.format(*place) for place in ((0, 1), (1, 1), (0, 2), (1, 2), (0, 3)))
    found = read("gluoncv_horovod", content)[1]
    assert found == [Step(1, 5.5, 1), Step(2, 5.5, 3), Step(3, 5.5, 5)]


def text_of(content: str | bytes, size: int | None = None) -> str:
    return b"".join(block.data for block in blocks(pieces(content, size), [b"x"])).decode()


@pytest.mark.parametrize("size", [1, 2, 7, None])
def test_blocks_are_whole_lines_with_their_numbers(size: int | None) -> None:
    assert list(blocks([], [b"x"])) == list(blocks([b"", b""], [b"x"])) == []
    found = list(blocks(pieces("a\n\nb Speed\r\nlast é", size), [b"x"]))
    whole = "".join(block.data.decode() for block in found)
    assert whole == "a\n\nb Speed\r\nlast é" + CUT
    assert all(block.data.endswith(b"\n") for block in found[:-1])
    at = [(b, b.data.index(word)) for b in found for word in (b"a\n", b"Speed") if word in b.data]
    assert [block.line(place) for block, place in at] == [1, 3]
    assert found[-1].line(len(found[-1].data)) == 4


@pytest.mark.parametrize("tag", ["", TAG], ids=["untagged", "tagged"])
def test_number_wrapped_where_a_piece_ends_keeps_its_digits(tag: str) -> None:
    line = "DLL 2026-11-20 13:58:34.784710 - (0, {}) total_ips : {}"
    lines = [line.format(0, "2.5"), line.format(10, "3.37"), "5044", line.format(20, "4.5")]
    lines += ["DLL 2026-11-20 13:58:37.925081 - () train_throughput : 3.4", "61"]
    wrapped = [(2, repr("3.37\n5044")), (5, repr("3.4\n61"))]
    content = "".join(f"{tag}{line}\n" for line in lines).encode()
    for cut in range(len(content) + 1):
        with pytest.raises(LineError, match="the rate is not a number") as caught:
            logs.parse(logs.formats()["dllogger"], [content[:cut], content[cut:]])
        assert (caught.value.line, caught.value.found) in wrapped


def test_progress_bar_with_carriage_returns() -> None:
    bar = "\r".join(f"{n}% done" for n in range(100))
    line = "Epoch[0] Batch[{}]\tSpeed: 5.5 samples/sec"
    content = f"{bar}\r{line.format(1)}\r{bar}\nworld_size=4\r{line.format(2)}\r\n"
    headers, found = read("gluoncv_horovod", content)
    assert headers == [Header(2, world_size=4)]
    assert found == [Step(1, 5.5, 1), Step(2, 5.5, 2)]


@pytest.mark.parametrize("size", [1000, 2**20, None])
@pytest.mark.parametrize("filler", ["a", "日", "ab ", "é\r"])
def test_endless_line_is_divided_between_words(filler: str, size: int | None) -> None:
    line = "Epoch[0] Batch[{}]\tSpeed: 5.5 samples/sec"
    long = filler * (3 * LONGEST // len(filler.encode()))
    content = f"\n{long} {line.format(1)} {long}\n{line.format(2)}\n"
    assert text_of(content, size) == content
    assert max(len(block.data) for block in blocks(pieces(content, 1000), [b"x"])) < LONGEST + 2000
    assert read("gluoncv_horovod", content, size)[1] == [Step(1, 5.5, 2), Step(2, 5.5, 3)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, None])
def test_bytes_that_are_not_utf8_matter_only_in_lines_with_rates(size: int | None) -> None:
    assert text_of("日本\nSpeed: 5 秒\n", size) == "日本\nSpeed: 5 秒\n"
    assert text_of("é\nÿ\n".encode() + b"abc\xe4\n more\xe6\x97", size) == "é\nÿ\nabc�\n more�…"
    line = b"Epoch[0] Batch[%d]\tSpeed: 5.5 samples/sec\n"
    assert read("gluoncv_horovod", b"\xb4\xb4\n" + line % 1, size)[1] == [Step(1, 5.5, 2)]
    with pytest.raises(LineError) as caught:
        read("gluoncv_horovod", line % 1 + b"\xb4 " + line % 2, size)
    assert (caught.value.line, caught.value.problem) == (2, "the line is not valid UTF-8")


@pytest.mark.parametrize("size", [1, 2, 3, 64, None])
@pytest.mark.parametrize("coding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_byte_order_mark_tells_the_coding(coding: str, size: int | None) -> None:
    mark = b"\xfe\xff" if coding == "utf-16-be" else b""
    content = "é\r\nEpoch[0] Batch[1]\tSpeed: 5.5 samples/sec\r\n"
    assert read("gluoncv_horovod", mark + content.encode(coding), size)[1] == [Step(1, 5.5, 2)]


@pytest.mark.parametrize("size", [1, 50, None])
@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_launchers_name_the_ranks(kind: str, size: int | None) -> None:
    label, ranks = LABELS[kind]
    lines = ["# Avg bus bandwidth", "world_size=2", "3.5", ""]
    lines += [f"Epoch[0] Batch[{step}]\tSpeed: 5.5 samples/sec" for step in (1, 2)]
    content = "".join(f"{label.format(r)}{line}\n" for line in lines for r in range(ranks))
    headers, found = read("gluoncv_horovod", content, size)
    assert headers == [Header(ranks + 1, world_size=2)]
    first = 4 * ranks + 1
    assert found == [Step(1, 5.5, first), Step(2, 5.5, first + ranks)]
    assert logs.detect([content.encode()]) is logs.formats()["gluoncv_horovod"]


def test_a_prefix_that_counts_something_names_no_writer() -> None:
    line = "epoch_{0} | Epoch[0] Batch[{0}]\tSpeed: 5.5 samples/sec\n".format
    _, steps = read("gluoncv_horovod", "".join(map(line, (1, 2, 3))))
    assert [step.step for step in steps] == [1, 2, 3]


PIECES = st.sampled_from(
    [
        *(b"\n", b"\r\n", b"\r", b"world_size=", b"world_si", b"7", b"<std", TAG.encode()),
        *(b"Epoch[0] Batch[3]\tSpeed: 5.0 samples/sec", b"Epoch[0] Batch[3] Loss[2.5]", b" "),
        *(b"Epoch[0] Ba", b"x" * 9, "日".encode(), b"[1,1]<stdout>:"),
    ]
)
# A loss of a rank whose steps do not count, before the first rate.
OTHERS_LOSS = [
    *(TAG.encode(), b"Epoch[0] Batch[3] Loss[2.5]", b"\n"),
    *(b"Epoch[0] Batch[3]\tSpeed: 5.0 samples/sec", b"[1,1]<stdout>:"),
]


@example(OTHERS_LOSS, 1)
@given(st.lists(PIECES, max_size=60), st.integers(1, 40))
def test_pieces_do_not_matter(parts: list[bytes], size: int) -> None:
    data = b"".join(parts)
    assert _outcome("gluoncv_horovod", data) == _outcome("gluoncv_horovod", data, size)


@given(st.lists(PIECES, max_size=60))
def test_reader_agrees_with_splitting_into_lines(parts: list[bytes]) -> None:
    content = b"".join(part for part in parts if b"<std" not in part).decode()
    entry = re.compile(r"Epoch\[0\] Batch\[3\]\tSpeed: 5.0 samples/sec")
    lines = enumerate(content.split("\n"), start=1)
    expected = [number for number, line in lines for _ in entry.findall(line)]
    with contextlib.suppress(LineError):  # a world size such as 7777777777777777777
        assert [step.line for step in read("gluoncv_horovod", content)[1]] == expected


def _outcome(log_format: str, data: bytes, size: int | None = None) -> str:
    """What is read, or the problem and its line."""
    try:
        return repr(read(log_format, data, size))  # nan is not itself
    except LineError as error:
        assert error.line >= 1
        return str(error)
