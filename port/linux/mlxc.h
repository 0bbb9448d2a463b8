// Force-included before every mlx-c source file and header when `setup` builds mlx-c on Linux.
//
// It stands in for two things that mlx-c 0.7.0 finds on a Mac:
//   - the 16-bit float types, which its own half.h takes from an Arm compiler. Elsewhere half.h defines
//     nothing, and mlx-c drops the functions that mlx-rs calls. Here they are MLX's own types on every
//     Linux machine, and half.h is skipped;
//   - `std::format`, which gcc before 13 does not have. mlx-c uses it with plain `{}` fields only.
//
// It changes no arithmetic: MLX itself is not compiled with it.
#pragma once

// The include guard of mlx/c/half.h: the lines below take its place.
#define MLX_HALF_H
#define HAS_FLOAT16
#define HAS_BFLOAT16

#ifndef __cplusplus

// Read by bindgen, which replaces both names by Rust types of the same layout (see half.rs).
#include <stdint.h>
typedef uint16_t float16_t;
typedef uint16_t bfloat16_t;

#else

#include <mlx/types/half_types.h>

#include <version>

using mlx::core::bfloat16_t;
using mlx::core::float16_t;

#ifdef __cpp_lib_format
#include <format>
#else

#include <sstream>
#include <string>
#include <string_view>

namespace std {

// Writes each argument in turn where the pattern says `{}`. No widths, no escapes: mlx-c uses none.
template <typename... Args>
string format(string_view pattern, const Args&... args) {
  ostringstream out;
  auto put = [&](const auto& arg) {
    auto field = pattern.find("{}");
    if (field == string_view::npos) {
      return;
    }
    out << pattern.substr(0, field) << arg;
    pattern.remove_prefix(field + 2);
  };
  (put(args), ...);
  out << pattern;
  return out.str();
}

} // namespace std

#endif // __cpp_lib_format
#endif // __cplusplus
