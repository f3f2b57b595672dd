/* Two regions of one process: a message goes forth and an answer comes back. Compile it with
 * `cc -I DIR put_get.c -L DIR -llinkscope -lpthread`, where DIR is the folder
 * linkscope/_native of the package. */
#include <linkscope.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 4096, WORD = 4000 };

static ls_region *here, *there;

static void check(ls_status status) {
  if (status == LS_OK) return;
  fprintf(stderr, "%s\n", ls_last_error());
  exit(1);
}

static void* answer(void* unused) {
  ls_channel* back;
  check(ls_channel_open(&back, there, here, NULL));
  check(ls_await(back, WORD, 1));
  printf("received: %s\n", (char*)ls_region_start(there));
  check(ls_signal(back, WORD, 1));
  ls_channel_close(back);
  return unused;
}

int main(void) {
  ls_channel* forth;
  pthread_t receiver;
  check(ls_region_create(&here, SIZE));
  check(ls_region_create(&there, SIZE));
  check(ls_channel_open(&forth, here, there, NULL));
  pthread_create(&receiver, NULL, answer, NULL);
  strcpy(ls_region_start(here), "a message");
  check(ls_put_signal(forth, 0, 0, 64, WORD, 1));
  check(ls_await(forth, WORD, 1));
  pthread_join(receiver, NULL);
  printf("carried by %s\n", ls_channel_transport(forth));
  ls_channel_close(forth);
  check(ls_region_close(here));
  check(ls_region_close(there));
  return 0;
}
