// In the place of <tf2/buffer_core.h>: `tf2::BufferCore` is asof's from here on, in code that is otherwise unchanged. tf2's own
// buffer_core.h must not be included in the same file, before or after.
#ifndef ASOF_TF2_BUFFER_CORE_H
#define ASOF_TF2_BUFFER_CORE_H

#if defined(TF2_BUFFER_CORE_H) || defined(TF2__BUFFER_CORE_H_) || defined(TF2__BUFFER_CORE_HPP_)
#error "tf2's own buffer_core.h is included already: include <asof/tf2/buffer_core.h> instead of it, not beside it"
#endif
#define TF2_BUFFER_CORE_H
#define TF2__BUFFER_CORE_H_
#define TF2__BUFFER_CORE_HPP_

#include "../tf2.hpp"

// What tf2's own header brings along, where it is there: tf2::Transform, tf2::Vector3 and so on.
#if __has_include(<tf2/transform_storage.hpp>)
#include <tf2/transform_storage.hpp>
#elif __has_include(<tf2/transform_storage.h>)
#include <tf2/transform_storage.h>
#endif

namespace tf2 {
using asof::tf2::BufferCore;
typedef asof::tf2::CompactFrameID CompactFrameID;
using asof::tf2::TestBufferCore;
typedef asof::tf2::TransformableCallbackHandle TransformableCallbackHandle;
typedef asof::tf2::TransformableRequestHandle TransformableRequestHandle;
using asof::tf2::TransformableResult;
using asof::tf2::TransformAvailable;
using asof::tf2::TransformFailure;
#if ASOF_TF2_ROS != 1
using asof::tf2::BUFFER_CORE_DEFAULT_CACHE_TIME;
#endif
#ifndef ASOF_TF2_EXCEPTIONS
using asof::tf2::BackwardExtrapolationException;
using asof::tf2::ConnectivityException;
using asof::tf2::ExtrapolationException;
using asof::tf2::ForwardExtrapolationException;
using asof::tf2::InvalidArgumentException;
using asof::tf2::LookupException;
using asof::tf2::NoDataForExtrapolationException;
using asof::tf2::TF2Error;
using asof::tf2::TimeoutException;
using asof::tf2::TransformException;
#endif
} // namespace tf2

#endif
