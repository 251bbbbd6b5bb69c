/* threads.h - how many threads compute. The pool is OpenMP's, the one oneDNN uses too. */
#ifndef BASE_THREADS_H
#define BASE_THREADS_H

/* Physical cores that this process may use (affinity and cgroup quota respected), at least 1. */
int threads_available(void);
/* Sets the number for the whole process; 0 = threads_available(). Returns the number set. */
int threads_set(int count);
int threads_count(void);

#endif
