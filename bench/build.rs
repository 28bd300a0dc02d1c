//! Compiles the C++ peers that need nothing but a C++ compiler.

fn main() {
    println!("cargo:rerun-if-changed=cpp");
    println!("cargo:rerun-if-changed=../crates/asof-hot/include");
    #[cfg(feature = "cpp")]
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(3)
        .include("../crates/asof-hot/include")
        .file("cpp/asof_hot.cpp")
        .compile("asof_bench_cpp_hot");
    #[cfg(feature = "hot")]
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .opt_level(3)
        .file("cpp/hot.cpp")
        .compile("asof_bench_cpp");
}
