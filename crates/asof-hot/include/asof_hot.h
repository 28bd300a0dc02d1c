// The C interface of asof-hot. Made by cbindgen from src/ffi; do not change by hand (see ci/hot/hot-cpp).
//
// Handles are those that the opening functions gave and that were not closed; names are strings that end with a zero;
// values are as large as the type that the handle was opened with; a handle is used by one thread at a time.
// Times are in nanoseconds of a clock that both sides share: asof_hot_now, unless told otherwise.

#ifndef ASOF_HOT_H
#define ASOF_HOT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// What there is to say about a sensor.
typedef enum {
  // Nothing that was not acknowledged.
  ASOF_LATCH_STATE_CLEAR = 0,
  // Events that were not acknowledged.
  ASOF_LATCH_STATE_CONTACT = 1,
  // Nothing to acknowledge, but nothing was heard from the sensor for too long either.
  ASOF_LATCH_STATE_SILENT = 2,
} AsofLatchState;

// What a mux says.
typedef enum {
  // There is a command to follow.
  ASOF_MUX_ANSWER_COMMAND = 0,
  // Stop: no source has commanded within its timeout.
  ASOF_MUX_ANSWER_NOBODY = 1,
  // Stop: a lock keeps every live source down.
  ASOF_MUX_ANSWER_LOCKED = 2,
  // Stop: sources came alive faster than they could be looked at.
  ASOF_MUX_ANSWER_UNSETTLED = 3,
} AsofMuxAnswer;

// Fills the slots of a broadcast ring.
typedef struct AsofBroadcastProducer AsofBroadcastProducer;

// Reads a broadcast ring at a place of its own.
typedef struct AsofBroadcastReader AsofBroadcastReader;

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

// A mux, of which there are ends to be had.
typedef struct AsofMux AsofMux;

// Names the one source that counts.
typedef struct AsofMuxDirector AsofMuxDirector;

// Engages and releases one lock.
typedef struct AsofMuxLock AsofMuxLock;

// Reads what is to be done.
typedef struct AsofMuxOutput AsofMuxOutput;

// Commands as one source.
typedef struct AsofMuxSource AsofMuxSource;

// Empties the slots of a ring.
typedef struct AsofRingConsumer AsofRingConsumer;

// Fills the slots of a ring.
typedef struct AsofRingProducer AsofRingProducer;

// A segment, whatever it holds.
typedef struct AsofSegment AsofSegment;

// Reads a large value.
typedef struct AsofSnapshotReader AsofSnapshotReader;

// Publishes a large value.
typedef struct AsofSnapshotWriter AsofSnapshotWriter;

// The shape of a struct, field by field.
typedef struct Shape Shape;

// What the values of a segment are: as the Rust side declares them with `plain!`.
typedef struct {
  // The name of the struct.
  const char *name;
  // Its size in bytes.
  size_t size;
  // Its alignment in bytes, 8 at most.
  size_t align;
  // What its fields are, as a number that is the same on both sides (`ASOF_FIELDS` in C++ computes it); 0 if nobody
  // knows, which fits everything.
  uint64_t shape;
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

// Events that were not acknowledged.
typedef struct {
  // The count of all events so far: what to reset once these were dealt with.
  uint64_t count;
  // How many of them are new.
  uint64_t new_count;
  // When the first of them was.
  uint64_t first;
  // When the last of them was. Of a silent sensor: when it was last heard, 0 if never.
  uint64_t last;
  // Which contacts were hit in them, as bits.
  uint32_t contacts;
} AsofLatchContact;

// How one source of a mux is judged.
typedef struct {
  // For how many nanoseconds from its stamp a command counts.
  uint64_t timeout;
} AsofMuxSourceConfig;

// How one lock of a mux is judged.
typedef struct {
  // How many sources, from the lowest on, it keeps down while it is engaged.
  uint32_t masks;
  // After how many nanoseconds without a release it counts as engaged; 0 if it has no heartbeat.
  uint64_t heartbeat;
} AsofMuxLockConfig;

// By whom a command is, or what stands against one.
typedef struct {
  // When there is a command: whose, from 0 on.
  uint32_t source;
  // When all are locked: by which lock, from 0 on.
  uint32_t lock;
  // Which command of that source, and when it was given.
  AsofMeta meta;
} AsofMuxInfo;

// Samples that were taken together, in place, until they are released by their ticket. Several may be held at once; they
// go back to the producer in the order in which they were taken.
typedef struct {
  // What to look at them and to release them by.
  uint64_t ticket;
  // How many there are; 0 if there was none to take.
  size_t count;
  // How many older samples were given back unread on the way to the newest.
  size_t skipped;
} AsofRingRead;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Why the last opening on this thread failed; empty if it did not. Valid until the next opening.
const char *asof_hot_last_error(void);

// The time on this machine's monotonic clock, in nanoseconds: what the Rust side stamps with.
uint64_t asof_hot_now(void);

// Says who may open the segments that this process makes from now on, as the bits of a file's mode: 0600, this user
// alone, if nothing is said; 0660 for all of the group. Whether such permissions can be.
bool asof_hot_set_permissions(uint32_t mode);

// Removes a segment's name; true if it was there.
bool asof_hot_remove(const char *name);

// Opens (or makes) a ring that keeps so many samples for so many readers, 16 at most, to write.
AsofBroadcastProducer *asof_broadcast_producer_open(const char *name,
                                                    AsofType value,
                                                    uint32_t slots,
                                                    uint32_t readers);

// The next slot, to fill in place; there always is one. The same slot until it is committed.
void *asof_broadcast_try_write(AsofBroadcastProducer *producer);

// As `asof_broadcast_try_write`, but null while a reader that is here has not read the oldest sample: nobody misses anything.
void *asof_broadcast_try_write_lossless(AsofBroadcastProducer *producer);

// Gives the slot that was taken to all readers; does nothing if none was.
void asof_broadcast_commit(AsofBroadcastProducer *producer, uint64_t stamp);

// How many times there was no slot to write to, through all of the ring's life.
uint64_t asof_broadcast_refused(const AsofBroadcastProducer *producer);

// Waits no longer for a reader, from 0 on, that was killed; false if there is none such.
bool asof_broadcast_forget_reader(AsofBroadcastProducer *producer, uint32_t reader);

// Whether no process that is alive holds a reading end.
bool asof_broadcast_producer_is_abandoned(const AsofBroadcastProducer *producer);

// Gives the writing end up.
void asof_broadcast_producer_close(AsofBroadcastProducer *producer);

// Opens (or makes) a ring for so many readers, as the how-manieth of them, from 0 on.
AsofBroadcastReader *asof_broadcast_reader_open(const char *name,
                                                AsofType value,
                                                uint32_t slots,
                                                uint32_t readers,
                                                uint32_t number);

// The oldest sample that this reader has not read, in place, until it is released; the same until then. Null if there is none.
const void *asof_broadcast_try_read(AsofBroadcastReader *reader,
                                    AsofMeta *meta);

// The newest sample, in place, until it is released; older ones count as missed. Null if there is none.
const void *asof_broadcast_try_latest(AsofBroadcastReader *reader,
                                      AsofMeta *meta);

// Goes on to the next sample; does nothing if none was taken.
void asof_broadcast_release(AsofBroadcastReader *reader);

// How many samples were written that this reader has not taken; more than the ring keeps if it has missed some.
uint64_t asof_broadcast_waiting(const AsofBroadcastReader *reader);

// How many samples this reader has missed, or gone past, in all.
uint64_t asof_broadcast_missed(const AsofBroadcastReader *reader);

// Whether no process that is alive holds the writing end.
bool asof_broadcast_reader_is_abandoned(const AsofBroadcastReader *reader);

// Gives a reading end up: nobody waits for it any more.
void asof_broadcast_reader_close(AsofBroadcastReader *reader);

// Opens (or makes) a latch to report events; after `silence` nanoseconds without a sign of life it is silent, 0 for never.
// Null if it is there with another silence.
AsofLatchTrigger *asof_latch_trigger_open(const char *name,
                                          uint64_t silence);

// Reports an event: which contacts, as bits, and when.
void asof_latch_trigger(AsofLatchTrigger *trigger, uint32_t contacts, uint64_t stamp);

// Says that the sensor is alive, and that nothing was hit.
void asof_latch_heartbeat(AsofLatchTrigger *trigger, uint64_t stamp);

// Gives the end that reports up.
void asof_latch_trigger_close(AsofLatchTrigger *trigger);

// Opens a latch to look at events; it must be there.
AsofLatchObserver *asof_latch_observer_open(const char *name);

// Whether there are events that were not acknowledged.
bool asof_latch_is_triggered(const AsofLatchObserver *observer);

// How many events came since this observer last asked, acknowledged or not.
uint64_t asof_latch_new_events(AsofLatchObserver *observer);

// How many events there were in all.
uint64_t asof_latch_count(const AsofLatchObserver *observer);

// Everything there is to say as of `now`; the events, if there are some, go to `contact`.
AsofLatchState asof_latch_state(const AsofLatchObserver *observer,
                                uint64_t now,
                                AsofLatchContact *contact);

// Closes an end that looks.
void asof_latch_observer_close(AsofLatchObserver *observer);

// Opens a latch to acknowledge events; it must be there, since the sensor's silence is for its trigger to say.
AsofLatchResetter *asof_latch_resetter_open(const char *name);

// After how many nanoseconds without a sign of life the sensor counts as silent; 0 for never.
uint64_t asof_latch_silence(const AsofLatchObserver *observer);

// Acknowledges all events up to `count`; false if more came by now, which stay.
bool asof_latch_reset(AsofLatchResetter *resetter, uint64_t count);

// Acknowledges what there is if the last event was at least `span` nanoseconds before `now`; whether it did.
bool asof_latch_reset_if_elapsed(AsofLatchResetter *resetter,
                                 uint64_t now,
                                 uint64_t span);

// Gives the end that acknowledges up.
void asof_latch_resetter_close(AsofLatchResetter *resetter);

// Opens (or makes) a latest value to write; `slots` is a power of two, 8 where the Rust side says nothing.
AsofLatestWriter *asof_latest_writer_open(const char *name,
                                          AsofType value,
                                          uint32_t slots);

// Publishes a value.
void asof_latest_write(AsofLatestWriter *writer, const void *value, uint64_t stamp);

// Copies the value that was written last to `value`, to be changed and written; false (and zeros) before the first.
bool asof_latest_last(const AsofLatestWriter *writer,
                      void *value);

// Gives the writing end up.
void asof_latest_writer_close(AsofLatestWriter *writer);

// Opens a latest value to read; it must be there.
AsofLatestReader *asof_latest_reader_open(const char *name, AsofType value, uint32_t slots);

// Copies the newest value to `value`; false if there is none yet. Never waits.
bool asof_latest_read(const AsofLatestReader *reader, void *value, AsofMeta *meta);

// Copies the newest value to `value` if it is another than the one of generation `seen`; false if it is not.
bool asof_latest_read_if_newer(const AsofLatestReader *reader,
                               uint64_t seen,
                               void *value,
                               AsofMeta *meta);

// The generation of the newest value; 0 before the first.
uint64_t asof_latest_generation(const AsofLatestReader *reader);

// Whether a process that is alive holds the writing end.
bool asof_latest_is_writer_alive(const AsofLatestReader *reader);

// Closes a reading end.
void asof_latest_reader_close(AsofLatestReader *reader);

// Opens a mux, or makes it: the later a source, the more important. Null if it is there with other limits.
AsofMux *asof_mux_open(const char *name,
                       AsofType value,
                       const AsofMuxSourceConfig *sources,
                       uint32_t source_count,
                       const AsofMuxLockConfig *locks,
                       uint32_t lock_count);

// Opens a mux of so many sources and locks that is there, with the limits that it has.
AsofMux *asof_mux_open_existing(const char *name,
                                AsofType value,
                                uint32_t source_count,
                                uint32_t lock_count);

// Closes a mux; ends that were had of it stay.
void asof_mux_close(AsofMux *mux);

// The end of one source, from 0 on; null while another process holds it.
AsofMuxSource *asof_mux_source_open(const AsofMux *mux, uint32_t number);

// Commands. It counts until its timeout has passed since `stamp`, unless someone more important commands.
void asof_mux_write(AsofMuxSource *source,
                    const void *value,
                    uint64_t stamp);

// Gives way at once, instead of after the timeout.
void asof_mux_give_way(AsofMuxSource *source);

// Gives the end of a source up; its last command counts until its timeout.
void asof_mux_source_close(AsofMuxSource *source);

// The end of one lock, from 0 on; null while another process holds it.
AsofMuxLock *asof_mux_lock_open(const AsofMux *mux, uint32_t number);

// Keeps the lock's sources down until it is released.
void asof_mux_lock_engage(AsofMuxLock *lock);

// Lets the lock's sources through; where it has a heartbeat, until that runs out.
void asof_mux_lock_release(AsofMuxLock *lock, uint64_t stamp);

// Whether the lock is engaged by hand.
bool asof_mux_lock_is_engaged(const AsofMuxLock *lock);

// Gives the end of a lock up; it stays as it is.
void asof_mux_lock_close(AsofMuxLock *lock);

// The end that can name the one source that counts; null while another process holds it.
AsofMuxDirector *asof_mux_director_open(const AsofMux *mux);

// From now on only this source counts, by its timeout and under the locks as ever; false if there is none such.
bool asof_mux_force(AsofMuxDirector *director,
                    uint32_t source);

// From now on the priorities decide again.
void asof_mux_automatic(AsofMuxDirector *director);

// Gives the director's end up; what it forced stays.
void asof_mux_director_close(AsofMuxDirector *director);

// Opens a mux of so many sources and locks to read; it must be there.
AsofMuxOutput *asof_mux_output_open(const char *name,
                                    AsofType value,
                                    uint32_t source_count,
                                    uint32_t lock_count);

// What is to be done at `now`. Without a command, `value` holds one that is not to be followed, or what it held.
AsofMuxAnswer asof_mux_read(const AsofMuxOutput *output,
                            uint64_t now,
                            void *value,
                            AsofMuxInfo *info);

// Closes a reading end.
void asof_mux_output_close(AsofMuxOutput *output);

// Opens (or makes) a ring of so many slots to write; when it is full it refuses, or drops its oldest sample.
AsofRingProducer *asof_ring_producer_open(const char *name,
                                          AsofType value,
                                          uint32_t slots,
                                          bool drops_oldest);

// The next slot, to fill in place; null if the ring is full. The same slot until it is committed.
void *asof_ring_try_write(AsofRingProducer *producer);

// Takes up to `most` slots in a row, to fill in place and commit together; how many, 0 if the ring is full.
size_t asof_ring_try_write_batch(AsofRingProducer *producer,
                                 size_t most);

// The how-manieth slot of those that were taken, from 0 on; null beyond them.
void *asof_ring_slot(const AsofRingProducer *producer, size_t index);

// Gives the slots that were taken to the consumer; does nothing if none was.
void asof_ring_commit(AsofRingProducer *producer, uint64_t stamp);

// How many samples were dropped unread, through all of the ring's life.
uint64_t asof_ring_lost(const AsofRingProducer *producer);

// How many times there was no slot to write to, through all of the ring's life.
uint64_t asof_ring_refused(const AsofRingProducer *producer);

// The most samples that waited at once, through all of the ring's life.
uint64_t asof_ring_high_water(const AsofRingProducer *producer);

// Whether no process that is alive holds the reading end.
bool asof_ring_producer_is_abandoned(const AsofRingProducer *producer);

// Gives the writing end up.
void asof_ring_producer_close(AsofRingProducer *producer);

// Opens (or makes) a ring to read, made as for the producer.
AsofRingConsumer *asof_ring_consumer_open(const char *name,
                                          AsofType value,
                                          uint32_t slots,
                                          bool drops_oldest);

// Takes the oldest sample, in place, until it is released; false if there is none.
bool asof_ring_try_read(AsofRingConsumer *consumer, AsofRingRead *read);

// Takes the newest sample, in place, until it is released; older ones are given back unread. False if there is none.
bool asof_ring_try_latest(AsofRingConsumer *consumer,
                          AsofRingRead *read);

// Takes up to `most` samples in a row, in place, until they are released together; false if there is none.
bool asof_ring_try_read_batch(AsofRingConsumer *consumer,
                              size_t most,
                              AsofRingRead *read);

// The how-manieth sample of those that were taken with a ticket, from 0 on; null beyond them, and once they are released.
const void *asof_ring_sample(const AsofRingConsumer *consumer,
                             uint64_t ticket,
                             size_t index,
                             AsofMeta *meta);

// Gives the samples that were taken with a ticket back to the producer, once all that was taken before is; false if they
// were given back already.
bool asof_ring_release(AsofRingConsumer *consumer,
                       uint64_t ticket);

// Whether a sample is there that was not taken yet.
bool asof_ring_has_new(const AsofRingConsumer *consumer);

// How many samples were dropped unread, as the consumer sees it.
uint64_t asof_ring_missed(const AsofRingConsumer *consumer);

// The most samples that waited at once, as the consumer sees it.
uint64_t asof_ring_most_waiting(const AsofRingConsumer *consumer);

// Whether no process that is alive holds the writing end.
bool asof_ring_consumer_is_abandoned(const AsofRingConsumer *consumer);

// Gives the reading end up.
void asof_ring_consumer_close(AsofRingConsumer *consumer);

// Opens a segment that is there, whatever it holds.
AsofSegment *asof_segment_open(const char *name);

// Closes a segment; ends of it stay.
void asof_segment_close(AsofSegment *segment);

// Whether the writing end (or producer, or trigger, or any source of a mux) is held by a process that is alive.
bool asof_segment_is_writer_alive(const AsofSegment *segment);

// Whether a claimed reading end (consumer, resetter, reader of a snapshot) is held by a process that is alive.
bool asof_segment_is_reader_alive(const AsofSegment *segment);

// How many writers there were so far: a change means that one took over from another.
uint64_t asof_segment_epoch(const AsofSegment *segment);

// Says, for the writer, that it is alive though it has nothing to write.
void asof_segment_beat(AsofSegment *segment, uint64_t now);

// When the writer last said so; 0 if never.
uint64_t asof_segment_last_beat(const AsofSegment *segment);

// Wakes all who sleep on this segment, in whatever process; call it after each publication.
void asof_segment_notify(const AsofSegment *segment);

// Sleeps until `is_ready(context)` holds, or `timeout` nanoseconds are over (0: never); looks once more whenever it is
// woken. Whether it holds.
bool asof_segment_wait(const AsofSegment *segment,
                       uint64_t timeout,
                       bool (*is_ready)(void*),
                       void *context);

// A file that is readable after this segment was notified, for `epoll`, `poll` and the like; -1 if there can be none. Clear it
// first, then look at the data. The segment has it, and a thread that rings it, until it is closed.
int asof_segment_event_fd(AsofSegment *segment);

// Makes the file unreadable until the segment is notified again.
void asof_segment_clear_event_fd(const AsofSegment *segment);

// Opens (or makes) a large value with so many readers, to write. With one reader it is a triple buffer.
AsofSnapshotWriter *asof_snapshot_writer_open(const char *name,
                                              AsofType value,
                                              uint32_t readers);

// The back buffer, to fill in place until it is published; it holds some older value.
void *asof_snapshot_back(AsofSnapshotWriter *writer);

// The back buffer, made equal to what was published last, to be changed in part.
void *asof_snapshot_edit(AsofSnapshotWriter *writer);

// From now on this writer edits by tiles of so many bytes; how many tiles that are, 0 if a tile has no byte. Each buffer is then
// copied whole once, and after that an edit costs as much as the tiles that it touches.
size_t asof_snapshot_use_tiles(AsofSnapshotWriter *writer,
                               size_t tile_size);

// A tile of the back buffer, from 0 on, to be changed in part: it holds what was published last, and what was changed since.
// Null if there is no such tile.
void *asof_snapshot_edit_tile(AsofSnapshotWriter *writer,
                              size_t tile);

// A tile of the back buffer, from 0 on, to be written whole: it holds some older contents. Null if there is no such tile.
void *asof_snapshot_overwrite_tile(AsofSnapshotWriter *writer,
                                   size_t tile);

// Gives the back buffer to all readers; another one is the back buffer then.
void asof_snapshot_publish(AsofSnapshotWriter *writer, uint64_t stamp);

// How many values were published, through all of the segment's life.
uint64_t asof_snapshot_generation(const AsofSnapshotWriter *writer);

// Gives the writing end up.
void asof_snapshot_writer_close(AsofSnapshotWriter *writer);

// Opens (or makes) a large value with so many readers, as the how-manieth of them, from 0 on.
AsofSnapshotReader *asof_snapshot_reader_open(const char *name,
                                              AsofType value,
                                              uint32_t readers,
                                              uint32_t number);

// Whether something was published that this reader has not taken yet.
bool asof_snapshot_has_new(const AsofSnapshotReader *reader);

// The newest value, in place; it stays as it is until the next call. Of generation 0 before the first.
const void *asof_snapshot_latest(AsofSnapshotReader *reader,
                                 AsofMeta *meta);

// The value that this reader has, whatever was published since.
const void *asof_snapshot_current(const AsofSnapshotReader *reader, AsofMeta *meta);

// Gives a reading end up.
void asof_snapshot_reader_close(AsofSnapshotReader *reader);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ASOF_HOT_H */
