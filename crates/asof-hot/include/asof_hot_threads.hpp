// asof-hot for C++, between the threads of one process: nothing to link, nothing but the standard library.
//
//   auto [odometry, navigation] = asof::threads::latest<Odometry>();
//   odometry.write({1.0, 2.0, 0.5});                        // in one thread
//   if (auto pose = navigation.read()) drive(pose->value);  // in any other
//
// The same structures as in Rust, by the same protocols: split ends that say who may write and who may read, which never
// block, never allocate once they are made, count what was lost, and tell how old it is what they return. Ends move from
// thread to thread but are used by one at a time; ends that can be copied are for any number of readers.
//
// | for                                                  | made by                       | in                |
// | every sample in order, in place (laser scans)        | ring, ring_drop_oldest        | ring.hpp          |
// | the same for several readers, each at its own place  | broadcast                     | broadcast.hpp     |
// | the newest small value, many readers (odometry)      | latest                        | latest.hpp        |
// | the newest large value, in place (maps, images)      | snapshot, triple_buffer       | snapshot.hpp      |
// | commands by priority, with a deadman                 | mux                           | mux.hpp           |
// | events that must not be missed (bumpers)             | event_latch                   | latch.hpp         |
//
// std::logic_error is thrown for what Rust does not compile: an end that is used while what it gave out is still in use.
// Nothing else throws but an allocation when a structure is made. From C++17 on.
#pragma once

#include "asof_hot_threads/broadcast.hpp"
#include "asof_hot_threads/latch.hpp"
#include "asof_hot_threads/latest.hpp"
#include "asof_hot_threads/mux.hpp"
#include "asof_hot_threads/ring.hpp"
#include "asof_hot_threads/snapshot.hpp"
