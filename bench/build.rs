//! Compiles the C++ peers that need nothing but a C++ compiler.

fn main() {
    println!("cargo:rerun-if-changed=cpp");
    #[cfg(feature = "hot")]
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .opt_level(3)
        .file("cpp/hot.cpp")
        .compile("asof_bench_cpp");
}
