// The C interface of asof-hot. Made by cbindgen from src/ffi.rs; do not change by hand (see ci/hot-cpp).
//
// Handles are those that the opening functions gave and that were not closed; names are strings that end with a zero;
// values are as large as the type that the handle was opened with; a handle is used by one thread at a time.

#ifndef ASOF_HOT_H
#define ASOF_HOT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// Looks at events.
typedef struct AsofLatchObserver AsofLatchObserver;

// Acknowledges events.
typedef struct AsofLatchResetter AsofLatchResetter;

// Reports events.
typedef struct AsofLatchTrigger AsofLatchTrigger;

// Reads a latest value.
typedef struct AsofLatestReader AsofLatestReader;

// Writes a latest value.
typedef struct AsofLatestWriter AsofLatestWriter;

// Empties the slots of a ring.
typedef struct AsofRingConsumer AsofRingConsumer;

// Fills the slots of a ring.
typedef struct AsofRingProducer AsofRingProducer;

// What the values of a segment are: as the Rust side declares them with `plain!`.
typedef struct {
  // The name of the struct.
  const char *name;
  // Its size in bytes.
  size_t size;
  // Its alignment in bytes, 8 at most.
  size_t align;
} AsofType;

// Which write a value came from, and when that was.
typedef struct {
  // The how-manieth write, from 1 on.
  uint64_t generation;
  // The writer's time, in nanoseconds.
  uint64_t stamp;
  // How many samples before this one were dropped unread (rings only).
  uint64_t missed;
} AsofMeta;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Why the last call on this thread failed; empty if none did. Valid until the next call.
const char *asof_hot_last_error(void);

// The time on this machine's monotonic clock, in nanoseconds: what the Rust side stamps with.
uint64_t asof_hot_now(void);

// Removes a segment's name; true if it was there.
bool asof_hot_remove(const char *name);

// Opens (or makes) a latest value to write; `slots` is a power of two, 8 where the Rust side says nothing.
AsofLatestWriter *asof_latest_writer_open(const char *name,
                                          AsofType value,
                                          uint32_t slots);

// Publishes a value.
void asof_latest_write(AsofLatestWriter *writer, const void *value, uint64_t stamp);

// Gives the writing end up.
void asof_latest_writer_close(AsofLatestWriter *writer);

// Opens a latest value to read; it must be there.
AsofLatestReader *asof_latest_reader_open(const char *name, AsofType value, uint32_t slots);

// Copies the newest value to `value`; false if there is none yet. Never waits.
bool asof_latest_read(const AsofLatestReader *reader, void *value, AsofMeta *meta);

// Whether a process that is alive holds the writing end.
bool asof_latest_is_writer_alive(const AsofLatestReader *reader);

// Closes a reading end.
void asof_latest_reader_close(AsofLatestReader *reader);

// Opens (or makes) a ring that refuses when it is full, to write.
AsofRingProducer *asof_ring_producer_open(const char *name, AsofType value, uint32_t slots);

// The next slot, to fill in place; null if the ring is full. The same slot until it is committed.
void *asof_ring_try_write(AsofRingProducer *producer);

// Gives the slot that was filled to the consumer; does nothing if none was taken.
void asof_ring_commit(AsofRingProducer *producer, uint64_t stamp);

// Gives the writing end up.
void asof_ring_producer_close(AsofRingProducer *producer);

// Opens (or makes) a ring that refuses when it is full, to read.
AsofRingConsumer *asof_ring_consumer_open(const char *name, AsofType value, uint32_t slots);

// The oldest sample, in place, until it is released; null if there is none.
const void *asof_ring_try_read(AsofRingConsumer *consumer, AsofMeta *meta);

// Gives the sample that was read back to the producer; does nothing if none was taken.
void asof_ring_release(AsofRingConsumer *consumer);

// Gives the reading end up.
void asof_ring_consumer_close(AsofRingConsumer *consumer);

// Opens (or makes) a latch to report events; after `silence` nanoseconds without a sign of life it is silent, 0 for never.
AsofLatchTrigger *asof_latch_trigger_open(const char *name,
                                          uint64_t silence);

// Reports an event: which contacts, as bits, and when.
void asof_latch_trigger(AsofLatchTrigger *trigger, uint32_t contacts, uint64_t stamp);

// Gives the end that reports up.
void asof_latch_trigger_close(AsofLatchTrigger *trigger);

// Opens a latch to look at events; it must be there.
AsofLatchObserver *asof_latch_observer_open(const char *name);

// Whether there are events that were not acknowledged.
bool asof_latch_is_triggered(const AsofLatchObserver *observer);

// The count of all events, to be acknowledged once they were dealt with; 0 if none is new.
uint64_t asof_latch_new_count(const AsofLatchObserver *observer, uint64_t now);

// Closes an end that looks.
void asof_latch_observer_close(AsofLatchObserver *observer);

// Opens a latch to acknowledge events.
AsofLatchResetter *asof_latch_resetter_open(const char *name, uint64_t silence);

// Acknowledges all events up to `count`; false if more came by now, which stay.
bool asof_latch_reset(AsofLatchResetter *resetter, uint64_t count);

// Gives the end that acknowledges up.
void asof_latch_resetter_close(AsofLatchResetter *resetter);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ASOF_HOT_H */
