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

namespace tf2 {
using asof::tf2::BufferCore;
typedef asof::tf2::CompactFrameID CompactFrameID;
using asof::tf2::TestBufferCore;
typedef asof::tf2::TransformableCallbackHandle TransformableCallbackHandle;
typedef asof::tf2::TransformableRequestHandle TransformableRequestHandle;
using asof::tf2::TransformableResult;
using asof::tf2::TransformAvailable;
using asof::tf2::TransformFailure;
#ifndef ASOF_TF2_EXCEPTIONS
using asof::tf2::ConnectivityException;
using asof::tf2::ExtrapolationException;
using asof::tf2::InvalidArgumentException;
using asof::tf2::LookupException;
using asof::tf2::TimeoutException;
using asof::tf2::TransformException;
#endif
} // namespace tf2

#endif
