// asof-hot for C++, between the threads of one process: header-only, needs only the standard library.
//
//   auto [odometry, navigation] = asof::threads::latest<Odometry>();
//   odometry.write({1.0, 2.0, 0.5});                        // in one thread
//   if (auto pose = navigation.read()) drive(pose->value);  // in any other
//
// The same structures as in Rust, with the same protocols: separate writing and reading ends that never block, never
// allocate after construction, count lost samples, and return every value with its age. Ends can be moved between
// threads but are used by one at a time; ends that can be copied are for any number of readers.
//
// | for                                                  | made by                       | in                |
// | every sample in order, in place (laser scans)        | ring, ring_drop_oldest        | ring.hpp          |
// | the same for several readers, each at its own pace   | broadcast                     | broadcast.hpp     |
// | the newest small value, many readers (odometry)      | latest                        | latest.hpp        |
// | the newest large value, in place (maps, images)      | snapshot, triple_buffer       | snapshot.hpp      |
// | commands by priority, with a deadman                 | mux                           | mux.hpp           |
// | events that must not be missed (bumpers)             | event_latch                   | latch.hpp         |
//
// std::logic_error is thrown for what Rust rejects at compile time: using an end while what it handed out is still in
// use. Otherwise only allocations during construction throw. Requires C++17.
#pragma once

#include "asof_hot_threads/broadcast.hpp"
#include "asof_hot_threads/latch.hpp"
#include "asof_hot_threads/latest.hpp"
#include "asof_hot_threads/mux.hpp"
#include "asof_hot_threads/ring.hpp"
#include "asof_hot_threads/snapshot.hpp"
