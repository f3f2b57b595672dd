"""What a copy between a file and a GPU needs, and the code that does it."""

from linkscope.advise.methods import reads_whole
from linkscope.model.curves import Method
from linkscope.units import parse_bytes

_USUAL = {"slots": "2", "chunk": "1MiB", "ring": "numa:0"}
_WHOLE = {
    True: """\
pread(file, slot, bytes, 0);  // slot: pinned, of cudaMallocHost
cudaMemcpyAsync(dst, slot, bytes, cudaMemcpyDefault, stream);""",
    False: """\
cudaMemcpyAsync(slot, src, bytes, cudaMemcpyDefault, stream);  // slot: pinned, of cudaMallocHost
cudaStreamSynchronize(stream);
pwrite(file, slot, bytes, 0);""",
}
# linkscope.save_file writes past the page cache wherever the file system allows it.
_SAVE_CACHED = """\
for (size_t at = 0; at < bytes; at += chunk) {
  size_t part = std::min(chunk, bytes - at);
  cudaMemcpyAsync(slot, src + at, part, cudaMemcpyDefault, stream);  // two slots in turn, and a thread that writes
  cudaStreamSynchronize(stream);
  pwrite(file, slot, part, at);  // a file opened without O_DIRECT
}"""
_CUFILE = {
    True: "cuFileRead(handle, dst, bytes, 0, 0);  // handle: of cuFileHandleRegister, once",
    False: "cuFileWrite(handle, src, bytes, 0, 0);  // handle: of cuFileHandleRegister, once",
}
_CHOICE = 'linkscope.native.set_knobs("{work}", bytes, uring={uring})  # or: linkscope tune --directory DIR\n'
_CACHED = 'linkscope.native.set_knobs("read_cached", bytes, mapped={mapped}{more})  # linkscope tune tries both\n'
_LIBRARY = {
    True: "linkscope.read_file(path, dst)  # C: ls_read_file",
    False: "linkscope.save_file(path, src)  # C: ls_save_file",
}


def call_of_file(method: Method, *, reads: bool) -> tuple[str, str]:
    """The language, 'C++' or 'Python', and the lines. `reads`: the file is the source."""
    if method.family.benchmark == "file_direct":
        return "C++", _CUFILE[reads]
    if _saves_cached(method, reads) and not reads_whole(method):
        return "C++", _SAVE_CACHED
    return ("C++", _WHOLE[reads]) if reads_whole(method) else ("Python", _chosen(method, reads) + _LIBRARY[reads])


def _chosen(method: Method, reads: bool) -> str:
    """The line that leaves a cached file to the ring, and one past the page cache to io_uring or to threads."""
    params = dict(method.params)
    if method.family.benchmark == "file_mapped":
        window, threads = parse_bytes(params.get("chunk", "1MiB")) or "bytes", params.get("threads", "1")
        return _CACHED.format(mapped=1, more=f", threads={threads}, chunk={window}")
    if params.get("cache") == "hot":
        return _CACHED.format(mapped=0, more="") if reads else ""
    return _CHOICE.format(work="read_cold" if reads else "write_file", uring=params.get("depth", 0))


def _saves_cached(method: Method, reads: bool) -> bool:
    return not reads and dict(method.params).get("cache") == "hot"


def needs_of_file(method: Method, *, reads: bool) -> tuple[str, ...]:
    """The conditions of the method."""
    params = dict(method.params)
    if method.family.benchmark == "file_direct":
        return "libcufile.so.0 and the kernel module nvidia-fs", "a file system that cuFile supports"
    if method.family.benchmark == "file_mapped":
        threads, window = params.get("threads", "1"), params.get("chunk", "1MiB")
        mapped = f"CPU threads that map and register windows of {window}: {threads}"
        return "the file in the page cache", mapped, "the library of linkscope"
    if params.get("cache") == "hot":
        needs = ["the file in the page cache" if reads else "memory for the page cache"]
    else:
        needs = ["a file system with O_DIRECT"]
    if reads_whole(method):
        return *needs, "pinned memory of the size of the file"
    slots, chunk, ring = (params.get(name, usual) for name, usual in _USUAL.items())
    whole = f"pinned memory of the size of the file on {ring}"
    needs.append(whole if chunk == "whole" else f"{slots} pinned slots of {chunk} on {ring}")
    if _saves_cached(method, reads):
        return tuple(needs)
    if "depth" in params:
        needs.append("a kernel that allows io_uring")
    return *needs, "the library of linkscope, which chooses its own slots"
