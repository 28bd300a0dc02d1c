// Stands in for ROS 2's tf2/exceptions.hpp: the classes of its newest release.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

namespace tf2 {
enum class TF2Error : std::uint8_t { TF2_NO_ERROR = 0, TF2_LOOKUP_ERROR = 1, TF2_CONNECTIVITY_ERROR = 2 };
class TransformException : public std::runtime_error {
public:
  explicit TransformException(const std::string text) : std::runtime_error(text) {}
};
class ConnectivityException : public TransformException {
public:
  using TransformException::TransformException;
};
class LookupException : public TransformException {
public:
  using TransformException::TransformException;
};
class ExtrapolationException : public TransformException {
public:
  using TransformException::TransformException;
};
class BackwardExtrapolationException : public ExtrapolationException {
public:
  using ExtrapolationException::ExtrapolationException;
};
class ForwardExtrapolationException : public ExtrapolationException {
public:
  using ExtrapolationException::ExtrapolationException;
};
class NoDataForExtrapolationException : public ExtrapolationException {
public:
  using ExtrapolationException::ExtrapolationException;
};
class InvalidArgumentException : public TransformException {
public:
  using TransformException::TransformException;
};
class TimeoutException : public TransformException {
public:
  using TransformException::TransformException;
};
} // namespace tf2
