/* Copies between host memory and GPUs that choose their method, and puts and gets. C99 and later, and C++.
 *
 * Each function returns LS_OK or an error, whose text ls_last_error() returns. All functions may be called by several
 * threads at once, unless stated otherwise. They leave the caller's CUDA context as it was. A stream is a CUstream or a
 * cudaStream_t of a GPU's primary context; NULL is the legacy default stream of the current context. Other pointers may be
 * NULL only where this file says so. */
#ifndef LINKSCOPE_H
#define LINKSCOPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LS_EXPORT __attribute__((visibility("default")))

/* A value for a stream: the legacy default stream of the GPU that has the memory, whichever context is current. Between two
 * GPUs it is the stream of the destination's GPU. */
#define LS_STREAM_OF_MEMORY ((void*)~(uintptr_t)0)

typedef enum ls_status {
  LS_OK = 0,
  LS_USAGE = 1,     /* the request is wrong: the caller's mistake */
  LS_FAILED = 2,    /* a call of the driver or the system failed; the process can go on */
  LS_LOST = 3,      /* the GPU or the process is no longer usable */
  LS_TIMEOUT = 4,   /* a wait passed its deadline */
  LS_MEMORY = 5,    /* an allocation was refused */
  LS_CANCELLED = 6, /* ls_transfer_cancel ended the copy early */
} ls_status;

/* The text of this thread's latest error: what is wrong, and the cure. Valid until the thread's next call. */
LS_EXPORT const char* ls_last_error(void);
/* The library's version, "0.1.0". */
LS_EXPORT const char* ls_version(void);
/* "", or why no GPU can be used here. Copies between two ranges of host memory work all the same. */
LS_EXPORT const char* ls_why_no_gpu(void);
/* Frees the pinned arena, events and contexts. Call it while no copy is in progress. The next call allocates them again. */
LS_EXPORT ls_status ls_close(void);

/* --- one copy ----------------------------------------------------------------------------------------------------- */

/* Copies in the order of the stream, as cudaMemcpyAsync does. When it returns, a pageable source may be changed, and a
 * pageable destination holds the data. The ranges must not overlap. During a graph capture of the stream it is one copy
 * of the driver, which the graph repeats. */
LS_EXPORT ls_status ls_copy(void* dst, const void* src, size_t bytes, void* stream);
/* The same where no page of the destination was touched yet: it is backed with huge pages where the kernel has them. */
LS_EXPORT ls_status ls_copy_to_fresh(void* dst, const void* src, size_t bytes, void* stream);
/* The name of the method that ls_copy would use; NULL after an error. */
LS_EXPORT const char* ls_method_of(void* dst, const void* src, size_t bytes, void* stream);

/* A copy that is made many times with the same memory, size and stream. Both ranges must stay allocated. */
typedef struct ls_prepared ls_prepared;
LS_EXPORT ls_status ls_prepare(ls_prepared** prepared, void* dst, const void* src, size_t bytes, void* stream);
LS_EXPORT ls_status ls_run(ls_prepared* prepared);
LS_EXPORT void ls_release(ls_prepared* prepared);

/* --- memory that is copied often ----------------------------------------------------------------------------------- */

/* Pins host memory that many copies will use. Copies of it follow the rules of pinned memory: do not change the source,
 * and do not read the destination, before the stream has made the copy. Memory that is already pinned as a whole stays
 * unchanged. Memory that this process can only read, such as a mapped file, can be registered as a source; copies to it are
 * LS_USAGE until the registration ends. A file on a disk that is mapped for writing with MAP_SHARED is LS_USAGE: Linux 6.5
 * and later do not pin it. LS_MEMORY if registrations would exceed half of the host's memory, or
 * LINKSCOPE_TRANSFER_REGISTERED=BYTES. */
LS_EXPORT ls_status ls_register(void* start, size_t bytes);
/* Ends the latest registration that begins at `start`, after the GPUs' work on it. Must precede freeing the memory: copies
 * of a range that was freed are LS_USAGE, and so is this call, if nothing else lies there yet. ls_close ends all. */
LS_EXPORT ls_status ls_unregister(void* start);
/* Bytes that are pinned by ls_register. */
LS_EXPORT ls_status ls_registered_bytes(uint64_t* bytes);

/* --- many blocks -------------------------------------------------------------------------------------------------- */

/* Copies `count` blocks in the order of the stream, in any order among themselves. Pageable memory is finished as by
 * ls_copy. A kernel on few SMs moves small blocks that the GPU reaches. During a graph capture of the stream each block is
 * one copy of the driver, which the graph repeats. No destination may overlap another destination or a source. Calls of at
 * most 64 blocks return LS_USAGE for any overlap, longer calls for neighbours in the list whose destinations overlap; no
 * block is copied then. Bytes of an overlap that is not refused come from any of its blocks. */
LS_EXPORT ls_status ls_copy_blocks(void* const* dst, const void* const* src, const size_t* bytes, size_t count,
                                   void* stream);

/* --- files -------------------------------------------------------------------------------------------------------- */

/* A range of a file and where it goes. */
typedef struct ls_piece {
  uint64_t offset, bytes;
  void* dst;
} ls_piece;

/* Bytes by method: read from the page cache, past it by O_DIRECT, or through it. `mapped`: those of `cached` that a GPU
 * copied from the page cache itself. `uring` and `cufile`: those of `direct` that io_uring and cuFile read; threads with
 * pread read the others. `uring_refused`: the errno if the kernel refused io_uring. */
typedef struct ls_read_counts {
  uint64_t cached, direct, buffered, uring, cufile, mapped;
  int32_t uring_refused;
} ls_read_counts;

/* Called by the calling thread now and then, with the bytes so far. A result other than 0 cancels the reading. */
typedef int (*ls_report)(uint64_t done, void* user);

/* What the caller wants to know of a reading: `report` is called with `user`, unless it is NULL; `counts` is a result. */
typedef struct ls_watch {
  ls_report report;
  void* user;
  ls_read_counts counts;
} ls_watch;

/* Reads pieces of a file to memory of one GPU, in the order of the stream, or to host memory. When it returns, the file
 * may be changed, and pieces on the host hold the data. `watch` may be NULL. */
LS_EXPORT ls_status ls_read_file(const char* path, const ls_piece* pieces, size_t count, void* stream, ls_watch* watch);

/* What follows the source before it in a file. `stream`: after whose work a GPU's memory is read. */
typedef struct ls_source {
  const void* src;
  uint64_t bytes;
  void* stream;
} ls_source;

/* Bytes by method: written past the page cache by O_DIRECT, or through it. `uring` and `cufile`: those of
 * `direct` that io_uring and cuFile wrote; threads with pwrite wrote the others. `uring_refused`: the errno if the kernel
 * refused io_uring. */
typedef struct ls_write_counts {
  uint64_t direct, buffered, cufile, uring;
  int32_t uring_refused;
} ls_write_counts;

/* What the caller wants of a saving: `report` as for reading; `durable` other than 0: return when the data is on the
 * disk; `counts` is a result, where `direct` and `buffered` add up to the file's size, or 0 after an error. */
typedef struct ls_saving {
  ls_report report;
  void* user;
  int durable;
  ls_write_counts counts;
} ls_saving;

/* Replaces a file by memory of GPUs and of the host, one source behind the other. The data goes to a temporary file
 * beside it, which then gets the name, so an error leaves the old file unchanged. `saving` may be NULL. */
LS_EXPORT ls_status ls_save_file(const char* path, const ls_source* sources, size_t count, ls_saving* saving);

/* --- a copy in the background ------------------------------------------------------------------------------------- */

typedef struct ls_transfer ls_transfer;
/* Starts a copy after the work that is on the stream now; between two GPUs a default stream is that of both. Later work of
 * the stream does not wait for it. Both ranges belong to the copy until ls_transfer_wait has returned. LS_USAGE during a
 * graph capture of the stream. */
LS_EXPORT ls_status ls_transfer_start(ls_transfer** transfer, void* dst, const void* src, size_t bytes, void* stream);
/* The bytes that are copied so far, and whether the copy has ended. */
LS_EXPORT ls_status ls_transfer_progress(const ls_transfer* transfer, size_t* done, int* ended);
/* Waits until all data is at the destination. Returns LS_CANCELLED if the copy ended early. */
LS_EXPORT ls_status ls_transfer_wait(ls_transfer* transfer);
/* Requests the end. A copy that is one call of the driver runs to its end. */
LS_EXPORT void ls_transfer_cancel(ls_transfer* transfer);
/* Cancels the copy if it is under way, waits for its end and frees the handle. */
LS_EXPORT void ls_transfer_free(ls_transfer* transfer);

/* --- methods ------------------------------------------------------------------------------------------------------ */

/* How a method divides copies of one size class. */
typedef struct ls_knobs {
  uint32_t plain;       /* not 0: copies of the class are one call of the driver */
  uint32_t threads;     /* CPU threads, with the caller */
  uint64_t chunk;       /* bytes of the largest chunk, at most a slot of the arena (4 MiB) */
  uint32_t depth;       /* slots of the arena for each thread */
  uint32_t chunks_each; /* chunks of each thread, at least: short copies have shorter chunks */
  uint64_t piece;       /* bytes of one call of memcpy; 0: the chunk */
  uint32_t sm_blocks;   /* thread blocks, one an SM, of a kernel that moves whole copies; 0: the copy engine does */
  uint64_t sm_chunk;    /* bytes of a chunk of that kernel */
  uint32_t links;       /* links of GPUs that copies by copy engine use, with those of helpers; 1: the GPU's own */
  uint32_t cufile;      /* not 0: cuFile moves files of read_cold and write_file, where it works */
  uint32_t tma;         /* not 0: that kernel uses the Tensor Memory Accelerator where GPU and addresses allow it */
  uint32_t uring;       /* of read_cold and write_file: requests of io_uring in flight, which one thread starts; 0:
                         * `threads` read or write */
  uint32_t mapped;      /* not 0, of read_cached: the GPU copies from the page cache, where it can be mapped and pinned,
                         * in windows of `chunk`, `threads` at once; together at most the bytes of the arena */
} ls_knobs;
/* Names helpers: GPUs, by their number in PCI bus order, whose links to the host the copies of other GPUs may use. The
 * default is LINKSCOPE_TRANSFER_HELPERS, or none. A copy between host memory and a GPU then also goes through 24 MiB of
 * memory of each helper that the GPU reaches by peer access, which slows down the helper's own copies; such a call
 * returns when most of the data has been copied, also for pinned memory. A GPU that reaches no helper uses its own link.
 * Peer access between contexts is not changed. Call it while no copy is in progress. */
LS_EXPORT ls_status ls_set_helpers(const uint32_t* gpus, size_t count);
/* The first size of each class, for copies and for the mean size of blocks. A class ends where the next one begins. */
LS_EXPORT const uint64_t* ls_size_classes(size_t* count);
LS_EXPORT const uint64_t* ls_block_classes(size_t* count);
/* The same for the mean size of pageable blocks, and for all bytes that a call reads from a file. */
LS_EXPORT const uint64_t* ls_packed_classes(size_t* count);
LS_EXPORT const uint64_t* ls_file_classes(size_t* count);
/* The knobs of the class that has `bytes`. Besides the methods of copies, there are packed_to_gpu and packed_to_host
 * (ls_copy_blocks with pageable blocks: `sm_blocks` of the kernel that scatters or gathers them), read_cached and
 * read_cold (ls_read_file to a GPU, from the page cache and past it), and write_file (ls_save_file). */
LS_EXPORT ls_status ls_get_knobs(const char* method, size_t bytes, ls_knobs* knobs);
/* Sets the knobs of a class. Call it while no copy is in progress. */
LS_EXPORT ls_status ls_set_knobs(const char* method, size_t bytes, const ls_knobs* knobs);
/* How ls_copy_blocks moves blocks that the GPU reaches at both ends: "loop", "batch" or "kernel", and the thread blocks
 * of the kernel, one an SM. `to_gpu` is 0 for blocks that go to the host. Fewer than four blocks are always a loop. */
LS_EXPORT ls_status ls_get_block_knobs(int to_gpu, size_t mean_bytes, const char** method, uint32_t* sm_blocks);
LS_EXPORT ls_status ls_set_block_knobs(int to_gpu, size_t mean_bytes, const char* method, uint32_t sm_blocks);
/* The number of copies that a method has made, without those below the smallest class that is not plain. */
LS_EXPORT ls_status ls_count(const char* method, uint64_t* count);
/* Why the latest copy fell back to the driver's own, or why a file took another way than its knobs say; "" if no copy
 * fell back. Valid until the thread's next call. */
LS_EXPORT const char* ls_latest_fallback(void);
/* Bytes of pinned memory that the arena has allocated. Its bound is 256 MiB, or LINKSCOPE_TRANSFER_ARENA. */
LS_EXPORT ls_status ls_arena_bytes(uint64_t* bytes);

/* --- tuning ------------------------------------------------------------------------------------------------------- */

/* What the best knobs depend on: GPUs, driver, CPU, CPUs of this process and methods. Valid until the thread's next
 * call, as the texts below. */
LS_EXPORT const char* ls_fingerprint(void);
/* The file that the library read its knobs from, "" without one; and when it was made, or why there is none, and which
 * classes left it because plain copies were faster. The file is the one of this machine in $XDG_CACHE_HOME/linkscope or
 * ~/.cache/linkscope, or LINKSCOPE_TRANSFER_TUNING; "none" there reads no file. */
LS_EXPORT ls_status ls_tuning(const char** file, const char** note);
/* Writes the present knobs to `path`, or to the file of this machine if it is NULL. `written` is the path. */
LS_EXPORT ls_status ls_save_tuning(const char* path, const char** written);

/* Times copies on one GPU, with `bytes` of device, pinned and pageable memory of its own. One thread at a time. */
typedef struct ls_trial ls_trial;
typedef enum ls_way {
  LS_CHOSEN = 0, /* by the method with its present knobs */
  LS_PLAIN = 1,  /* by one call of the driver */
  LS_PINNED = 2, /* the same from or to pinned memory; LS_PLAIN for within_gpu and between_peers */
} ls_way;
LS_EXPORT ls_status ls_trial_open(ls_trial** trial, uint32_t gpu, size_t bytes);
LS_EXPORT void ls_trial_close(ls_trial* trial);
/* The median seconds of `repeats` copies, each with its end. */
LS_EXPORT ls_status ls_trial_copy(ls_trial* trial, const char* method, ls_way way, size_t bytes, uint32_t repeats,
                                  double* seconds);
LS_EXPORT ls_status ls_trial_blocks(ls_trial* trial, int to_gpu, size_t block_bytes, size_t count, uint32_t repeats,
                                    double* seconds);
/* The same with pageable memory. */
LS_EXPORT ls_status ls_trial_packed(ls_trial* trial, int to_gpu, size_t block_bytes, size_t count, uint32_t repeats,
                                    double* seconds);
/* Adds memory of another GPU, from which ls_trial_copy with between_gpus and between_peers copies: `bytes` of each kind. */
LS_EXPORT ls_status ls_trial_add_gpu(ls_trial* trial, uint32_t gpu);
/* The same for reading the first `bytes`, at most 256 MiB, of a file to the GPU. The file has no name and lies in
 * `directory`, or in memory if it is NULL. `cold` other than 0: the page cache is evicted before each reading. */
LS_EXPORT ls_status ls_trial_file(ls_trial* trial, const char* directory, int cold, size_t bytes, uint32_t repeats,
                                  double* seconds);
/* The same for saving memory of the GPU durably to a file in `directory`, which is removed. */
LS_EXPORT ls_status ls_trial_save(ls_trial* trial, const char* directory, size_t bytes, uint32_t repeats,
                                  double* seconds);

/* --- put and get -------------------------------------------------------------------------------------------------- */

/* Registered memory. It stays allocated until ls_region_close, which refuses while a channel uses it. */
typedef struct ls_region ls_region;
/* Memory of this process: of the host, pinned or not, or of a GPU. */
LS_EXPORT ls_status ls_region_open(ls_region** region, void* start, size_t bytes);
/* New host memory, zero, which other processes of this host may import, and which GPUs reach. */
LS_EXPORT ls_status ls_region_create(ls_region** region, size_t bytes);
/* New memory of a GPU, zero. Other processes import it by a POSIX file descriptor, and memory of ls_region_open by CUDA IPC. */
LS_EXPORT ls_status ls_region_create_on_gpu(ls_region** region, size_t bytes, uint32_t gpu);
/* A text by which other processes import the region: on this host, or over TCP at an IPv4 address (port 0: any free one).
 * NULL after an error; valid until this thread's next call. TCP has no protection: use it in a trusted network. */
LS_EXPORT const char* ls_region_handle(ls_region* region);
LS_EXPORT const char* ls_region_serve(ls_region* region, const char* address, uint16_t port);
/* The same for processes whose network card is connected to one that knows the region by an address and a remote key. */
LS_EXPORT const char* ls_region_card_handle(const ls_region* region, uint64_t address, uint32_t key);
/* Memory of another process. That of a GPU is mapped for GPU `gpu` of this process. */
LS_EXPORT ls_status ls_region_import(ls_region** region, const char* handle, uint32_t gpu);
/* Its address here; NULL if it is behind TCP. */
LS_EXPORT void* ls_region_start(const ls_region* region);
LS_EXPORT ls_status ls_region_close(ls_region* region);

/* Moves data between a local and a remote region. GPUs are numbered in PCI bus order, from 0. One CPU thread, or one group of threads of a kernel, posts at a time. */
typedef struct ls_channel ls_channel;
typedef enum ls_transport { LS_ANY = 0, LS_DIRECT = 1, LS_KERNEL = 2, LS_PROXY = 3, LS_VERBS = 4 } ls_transport;
/* A queue pair of an RDMA network card with the layout of mlx5: made by a library of the card's maker, connected, ready to
 * send, and unused so far. The channel that takes it empties its queues, posts and polls. Its memory is that of the host for
 * CPU threads, pinned or the GPU's own for a GPU; the doorbell is mapped for the poster, and the records are 0. */
typedef struct ls_queue_pair {
  uint32_t number;
  void *send, *completions;               /* at multiples of 64; powers of two of pieces of 64 bytes */
  uint64_t send_bytes, completions_bytes; /* no fewer completions than blocks to send */
  void *send_record, *completions_record; /* 4 bytes each */
  void* doorbell;                         /* 8 bytes */
  uint64_t local, old_value;              /* the local region as registered, and 8 registered bytes for additions */
  uint32_t local_key, old_value_key;
} ls_queue_pair;
/* `gpu`: whose kernels post; below 0: CPU threads post. `transport`: LS_ANY is LS_DIRECT, the poster's own loads and stores,
 * where it reaches both regions, else LS_VERBS with a queue pair, which the poster writes elements of, else LS_PROXY, a CPU
 * thread, which writes them for regions behind a network card. LS_KERNEL: a kernel of GPU `server_gpu` serves, until nobody
 * has posted for 10 s. `slots`: descriptors of the ring, of `descriptor_bytes` (16 to 128) each. */
typedef struct ls_channel_options {
  int32_t gpu;
  uint32_t transport, server_gpu, slots, descriptor_bytes;
  double timeout_s; /* of each wait */
  int32_t ring_gpu; /* LS_KERNEL with a GPU that posts: whose memory has the ring; below 0: host memory */
  uint32_t tma;     /* not 0: blocks of the library's kernels copy by TMA (compute capability 9.0 and later) */
  uint32_t proxy;   /* LS_PROXY: the number of a thread that channels of one number share, in turn; 0: one of its own */
  const ls_queue_pair* pair; /* for regions of ls_region_card_handle; else NULL */
} ls_channel_options;
/* CPU threads post; LS_ANY, 256 slots of 32 bytes in host memory, 2 s, copies by loads and stores. */
#define LS_CHANNEL_DEFAULTS {-1, LS_ANY, 0, 256, 32, 2.0, -1, 0, 0, NULL}
/* `options` may be NULL. */
LS_EXPORT ls_status ls_channel_open(ls_channel** channel, ls_region* local, ls_region* remote,
                                    const ls_channel_options* options);
/* Waits for the end of the latest ls_run_steps. */
LS_EXPORT void ls_channel_close(ls_channel* channel);
/* "memory", or what serves the channel and why: "proxy (copy engine): GPU 0 and GPU 1 have no peer access". */
LS_EXPORT const char* ls_channel_transport(const ls_channel* channel);
/* What a kernel takes by value as its linkscope::Channel (linkscope_device.hpp). */
typedef struct ls_view {
  uint64_t words[16];
} ls_view;
LS_EXPORT ls_status ls_channel_view(const ls_channel* channel, ls_view* view);

/* Posted by a CPU thread, with offsets in bytes. Operations take effect in order; the data of a put is only complete when a
 * later signal or addition can be seen, or after ls_quiet. Words have 8 bytes. */
LS_EXPORT ls_status ls_put(ls_channel* channel, uint64_t remote, uint64_t local, uint64_t bytes);
LS_EXPORT ls_status ls_get(ls_channel* channel, uint64_t local, uint64_t remote, uint64_t bytes);
LS_EXPORT ls_status ls_put_signal(ls_channel* channel, uint64_t remote, uint64_t local, uint64_t bytes, uint64_t word,
                                  uint64_t value);
LS_EXPORT ls_status ls_signal(ls_channel* channel, uint64_t word, uint64_t value);
LS_EXPORT ls_status ls_add(ls_channel* channel, uint64_t word, uint64_t value);
/* Sources of puts may be written again, and the data of gets is there. */
LS_EXPORT ls_status ls_flush(ls_channel* channel);
/* All data is at its destination. */
LS_EXPORT ls_status ls_quiet(ls_channel* channel);
/* Waits until a word of the local region is at least `value`. LS_TIMEOUT: the text says what was waited for. */
LS_EXPORT ls_status ls_await(ls_channel* channel, uint64_t word, uint64_t value);
/* Looks once, without a wait: `there` becomes 1 if the word is at least `value`, else 0, also after an error. */
LS_EXPORT ls_status ls_poll(ls_channel* channel, uint64_t word, uint64_t value, int32_t* there);

/* A step of a kernel that the library has: `verb` with what ls_put … ls_await take. */
typedef enum ls_verb {
  LS_STEP_PUT = 1,
  LS_STEP_GET = 2,
  LS_STEP_SIGNAL = 3, /* remote: the word */
  LS_STEP_ADD = 4,
  LS_STEP_PUT_SIGNAL = 5,
  LS_STEP_AWAIT = 6, /* local: the word */
  LS_STEP_QUIET = 7,
} ls_verb;
typedef struct ls_step {
  uint64_t verb, local, remote, bytes, word, value;
} ls_step;
/* Lets the channel's GPU perform steps in the order of a stream: a thread (1), a warp (32), or a block of `threads`. One
 * call at a time; the next one waits for it. If a region's memory of a GPU was freed, it launches nothing and fails. */
LS_EXPORT ls_status ls_run_steps(ls_channel* channel, const ls_step* steps, size_t count, uint32_t threads,
                                 void* stream);
/* The same by several blocks together, at most one for each SM: a large put by 16 to 32 blocks is as fast as the link. */
LS_EXPORT ls_status ls_run_steps_by_blocks(ls_channel* channel, const ls_step* steps, size_t count, uint32_t blocks,
                                           uint32_t threads, void* stream);
/* Waits for the end of the latest ls_run_steps, and returns its error. */
LS_EXPORT ls_status ls_finish_steps(ls_channel* channel);

#ifdef __cplusplus
}
#endif
#endif
