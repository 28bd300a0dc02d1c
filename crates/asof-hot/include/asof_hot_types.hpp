// Common parts of asof-hot's C++ headers: times, and the names of types in both languages.
//
// The compiler provides the type names. A struct's name is its declared name without the namespace: `robot::Odometry`
// here is `plain! { struct Odometry { .. } }` in Rust. Numbers are u8 to f64, arrays are written like "f32*720". If the
// two sides name a struct differently, declare that once, at namespace scope: ASOF_NAME(my::Odom, "Odometry").
//
// ASOF_FIELDS(robot::Odometry, position, velocity) also declares the fields, which are then compared with the other
// side's by name and type; without it, only name, size and alignment of the struct are compared.
// Requires C++17.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string_view>
#include <type_traits>

namespace asof {

using Nanoseconds = std::chrono::nanoseconds;

// The current time in nanoseconds of the monotonic clock that all processes of a machine share, as Rust's
// `MonoStamp::now()`.
inline std::uint64_t now() {
    std::timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(time.tv_nsec);
}

// How long ago a time was; zero if it is in the future.
inline Nanoseconds since(std::uint64_t stamp, std::uint64_t time = now()) {
    return Nanoseconds(static_cast<std::int64_t>(time > stamp ? time - stamp : 0));
}

// Whether a time is at most `span` from now, before or after. `since` does not show that: by age, a stamp in the future
// is always new.
inline bool is_fresh(std::uint64_t stamp, Nanoseconds span, std::uint64_t time = now()) {
    const auto distance = time > stamp ? time - stamp : stamp - time;
    return span.count() >= 0 && distance <= static_cast<std::uint64_t>(span.count());
}

namespace detail {

inline std::uint64_t nanos(Nanoseconds span) { return span.count() > 0 ? static_cast<std::uint64_t>(span.count()) : 0; }

// A name of up to 47 bytes; longer ones are truncated.
struct Name {
    char text[48] = {};

    constexpr std::size_t size() const {
        std::size_t size = 0;
        while (size < sizeof(text) && text[size]) ++size;
        return size;
    }
    constexpr Name then(std::string_view more) const {
        Name name = *this;
        auto at = size();
        for (const char letter : more)
            if (at + 1 < sizeof(text)) name.text[at++] = letter;
        return name;
    }
    constexpr Name then(std::size_t number) const {
        char digits[20] = {};
        std::size_t first = sizeof(digits);
        do {
            digits[--first] = static_cast<char>('0' + number % 10);
            number /= 10;
        } while (number);
        return then(std::string_view(digits + first, sizeof(digits) - first));
    }
};

template <typename T>
constexpr std::string_view signature() {
#if defined(_MSC_VER) && !defined(__clang__)
    return __FUNCSIG__;
#else
    return __PRETTY_FUNCTION__;
#endif
}

// A struct's name from the compiler, without its namespaces.
template <typename T>
constexpr std::string_view struct_name() {
    std::string_view text = signature<T>();
    const auto start = text.find("T = ");
    text.remove_prefix(start == std::string_view::npos ? 0 : start + 4);
    std::size_t end = 0, depth = 0, begin = 0;
    for (; end < text.size(); ++end) {
        const char letter = text[end];
        if (letter == '<' || letter == '(') ++depth;
        if (letter == '>' || letter == ')') --depth;
        if (depth == 0 && (letter == ';' || letter == ']')) break;
        if (depth == 0 && letter == ':') begin = end + 1;
    }
    return text.substr(begin, end - begin);
}

template <typename T>
struct Array : std::false_type {};
template <typename T, std::size_t N>
struct Array<T[N]> : std::true_type {
    using Element = T;
    static constexpr std::size_t size = N;
};
template <typename T, std::size_t N>
struct Array<std::array<T, N>> : std::true_type {
    using Element = T;
    static constexpr std::size_t size = N;
};

template <typename T>
constexpr Name name_of();

}  // namespace detail

// The name of a type in the header of a shared segment; ASOF_NAME overrides it.
template <typename T, typename = void>
struct TypeName {
    static constexpr detail::Name value = detail::name_of<T>();
};

// A hash of the fields of a struct, the same in both languages; 0 if unknown.
template <typename T, typename = void>
struct Fields {
    static constexpr std::uint64_t shape = 0;
};
template <typename T>
struct Fields<T, std::enable_if_t<detail::Array<T>::value>> : Fields<typename detail::Array<T>::Element> {};

namespace detail {

template <typename T>
constexpr Name name_of() {
    using Plain = std::remove_cv_t<T>;
    if constexpr (Array<Plain>::value) {
        return TypeName<typename Array<Plain>::Element>::value.then("*").then(Array<Plain>::size);
    } else if constexpr (std::is_enum_v<Plain>) {
        return TypeName<std::underlying_type_t<Plain>>::value;
    } else if constexpr (std::is_same_v<Plain, bool> || std::is_same_v<Plain, char>) {
        return Name{}.then("u8");
    } else if constexpr (std::is_integral_v<Plain>) {
        return Name{}.then(std::is_signed_v<Plain> ? "i" : "u").then(sizeof(Plain) * 8);
    } else if constexpr (std::is_floating_point_v<Plain>) {
        static_assert(sizeof(Plain) <= 8, "float and double only");
        return Name{}.then("f").then(sizeof(Plain) * 8);
    } else {
        return Name{}.then(struct_name<Plain>());
    }
}

// As Rust's `plain!` computes it, field by field: FNV-1a.
struct Shape {
    std::uint64_t hash = 0xcbf29ce484222325u;
    std::size_t bytes = 0;

    constexpr Shape add(std::string_view text) const {
        Shape shape = *this;
        for (const char letter : text)
            shape.hash = (shape.hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
        return shape;
    }
    template <typename T>
    constexpr Shape with(std::string_view field) const {
        const Name& type = TypeName<T>::value;
        Shape shape = add(field).add(":").add(std::string_view(type.text, type.size())).add(";");
        if constexpr (Fields<T>::shape != 0) {
            for (int byte = 0; byte < 8; ++byte) {
                const char letter = static_cast<char>(Fields<T>::shape >> (8 * byte));
                shape = shape.add(std::string_view(&letter, 1));
            }
        }
        shape.bytes += sizeof(T);
        return shape;
    }
    constexpr std::uint64_t number() const { return hash ? hash : 1; }
};

template <typename T>
constexpr bool is_plain() {
    return std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>;
}

}  // namespace detail
}  // namespace asof

// Declares the name of a struct on the other side; at global scope, outside of any namespace.
#define ASOF_NAME(Type, name)                                                    \
    template <>                                                                  \
    struct asof::TypeName<Type> {                                                \
        static constexpr asof::detail::Name value = asof::detail::Name{}.then(name); \
    }

// Declares the fields of a struct, all of them and in order, up to 16; at global scope, outside of any namespace.
#define ASOF_FIELDS(Type, ...)                                                                           \
    template <>                                                                                          \
    struct asof::Fields<Type> {                                                                          \
        static constexpr asof::detail::Shape sum = asof::detail::Shape{} ASOF_EACH_(Type, __VA_ARGS__);  \
        static_assert(sum.bytes == sizeof(Type), "a field is missing here, or there is padding between"); \
        static constexpr std::uint64_t shape = sum.number();                                             \
    }
#define ASOF_EACH_(T, ...)                                                                                          \
    ASOF_PICK_(__VA_ARGS__, ASOF_F16_, ASOF_F15_, ASOF_F14_, ASOF_F13_, ASOF_F12_, ASOF_F11_, ASOF_F10_, ASOF_F9_,  \
               ASOF_F8_, ASOF_F7_, ASOF_F6_, ASOF_F5_, ASOF_F4_, ASOF_F3_, ASOF_F2_, ASOF_F1_, )(T, __VA_ARGS__)
#define ASOF_PICK_(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, _15, _16, pick, ...) pick
#define ASOF_F1_(T, f) .template with<decltype(T::f)>(#f)
#define ASOF_F2_(T, f, ...) ASOF_F1_(T, f) ASOF_F1_(T, __VA_ARGS__)
#define ASOF_F3_(T, f, ...) ASOF_F1_(T, f) ASOF_F2_(T, __VA_ARGS__)
#define ASOF_F4_(T, f, ...) ASOF_F1_(T, f) ASOF_F3_(T, __VA_ARGS__)
#define ASOF_F5_(T, f, ...) ASOF_F1_(T, f) ASOF_F4_(T, __VA_ARGS__)
#define ASOF_F6_(T, f, ...) ASOF_F1_(T, f) ASOF_F5_(T, __VA_ARGS__)
#define ASOF_F7_(T, f, ...) ASOF_F1_(T, f) ASOF_F6_(T, __VA_ARGS__)
#define ASOF_F8_(T, f, ...) ASOF_F1_(T, f) ASOF_F7_(T, __VA_ARGS__)
#define ASOF_F9_(T, f, ...) ASOF_F1_(T, f) ASOF_F8_(T, __VA_ARGS__)
#define ASOF_F10_(T, f, ...) ASOF_F1_(T, f) ASOF_F9_(T, __VA_ARGS__)
#define ASOF_F11_(T, f, ...) ASOF_F1_(T, f) ASOF_F10_(T, __VA_ARGS__)
#define ASOF_F12_(T, f, ...) ASOF_F1_(T, f) ASOF_F11_(T, __VA_ARGS__)
#define ASOF_F13_(T, f, ...) ASOF_F1_(T, f) ASOF_F12_(T, __VA_ARGS__)
#define ASOF_F14_(T, f, ...) ASOF_F1_(T, f) ASOF_F13_(T, __VA_ARGS__)
#define ASOF_F15_(T, f, ...) ASOF_F1_(T, f) ASOF_F14_(T, __VA_ARGS__)
#define ASOF_F16_(T, f, ...) ASOF_F1_(T, f) ASOF_F15_(T, __VA_ARGS__)
