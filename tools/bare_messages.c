// A bare loop of MPI_Send and MPI_Recv between two ranks, which tools/ranks_beside.py compares with linkscope's messages.
//
// Usage: mpiexec -n 2 bare_messages serialized|single [BATCHES]
//
// MPI is initialized for one thread at a time, or by MPI_Init. Rank 0 prints a line for each size: the bytes, and half a round
// trip in nanoseconds, as the median of the batches (21, at most 99).
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { most_batches = 99, trips = 10000, tag = 1 };

static int by_size(const void* one, const void* other) {
  const double a = *(const double*)one, b = *(const double*)other;
  return (a > b) - (a < b);
}

static void trip(int rank, char* buffer, int bytes) {
  const int other = 1 - rank;
  if (rank == 0) MPI_Send(buffer, bytes, MPI_BYTE, other, tag, MPI_COMM_WORLD);
  MPI_Recv(buffer, bytes, MPI_BYTE, other, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank == 1) MPI_Send(buffer, bytes, MPI_BYTE, other, tag, MPI_COMM_WORLD);
}

static double median_ns(int rank, int bytes, int batches) {
  static char buffer[64];
  double found[most_batches];
  for (int batch = 0; batch < batches; ++batch) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < trips; ++i) trip(rank, buffer, bytes);
    found[batch] = (MPI_Wtime() - begin) / (2.0 * trips) * 1e9;
  }
  qsort(found, batches, sizeof *found, by_size);
  return found[batches / 2];
}

int main(int count, char** words) {
  int rank = 0, ranks = 0, given = 0;
  const int batches = count > 2 ? atoi(words[2]) : 21;
  if (count > 1 && strcmp(words[1], "single") == 0) MPI_Init(&count, &words);
  else MPI_Init_thread(&count, &words, MPI_THREAD_SERIALIZED, &given);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != 2 || batches < 1 || batches > most_batches) MPI_Abort(MPI_COMM_WORLD, 2);
  for (int bytes = 0; bytes <= 8; bytes += 8) {
    const double found = median_ns(rank, bytes, batches);
    if (rank == 0) printf("%d %.1f\n", bytes, found);
  }
  return MPI_Finalize();
}
