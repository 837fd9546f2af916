// Runs the kernel above it on one problem: `program IN OUT`. IN holds the numbers of struct Job, then
// A, B and C as they lie in memory; OUT gets D. A canary behind D must stay as it is.
#pragma once

#include <cstdio>
#include <cstring>

using cutlass_study::OutputElement;

struct Job {
  int m, n, k, grid_x, grid_y;
  float alpha, beta;
  int has_c;
  long long lda, ldb, ldd, bytes_a, bytes_b, bytes_d;
};

inline std::vector<unsigned char> read_bytes(std::FILE* file, std::size_t count) {
  std::vector<unsigned char> bytes(count);
  if (std::fread(bytes.data(), 1, count, file) != count) std::_Exit(2);
  return bytes;
}

#ifdef CUTLASS_STUDY_WGMMA
inline cutlass_study::TensorMap map_of(const unsigned char* data, long long rows, long long columns,
                                       long long leading, int box_rows) {
  cutlass_study::TensorMap map{};
  map.words[0] = reinterpret_cast<unsigned long long>(data);
  map.words[1] = rows, map.words[2] = columns, map.words[3] = 2 * leading, map.words[4] = box_rows;
  return map;
}
#endif

int main(int, char** arguments) {
  std::FILE* input = std::fopen(arguments[1], "rb");
  Job job;
  if (std::fread(&job, sizeof(job), 1, input) != 1) return 2;
  const auto a = read_bytes(input, job.bytes_a), b = read_bytes(input, job.bytes_b);
  const auto c = read_bytes(input, job.has_c ? job.bytes_d : 0);
  std::fclose(input);
  // From operator new: aligned as the GPU's memory is, for what the kernels ask.
  std::vector<unsigned char> d(job.bytes_d + 256, 0xff);
  const auto* source = job.has_c ? reinterpret_cast<const OutputElement*>(c.data()) : nullptr;
  auto* target = reinterpret_cast<OutputElement*>(d.data());
#ifdef CUTLASS_STUDY_WGMMA
  using namespace cutlass_study;
  const TensorMap map_a = map_of(a.data(), job.m, job.k, job.lda, kTileM);
  const TensorMap map_b = map_of(b.data(), job.n, job.k, job.ldb, kTileN);
  const auto kernel = [&] {
    gemm(map_a, map_b, job.m, job.n, job.k, job.alpha, job.beta, source, target, job.ldd, job.ldd);
  };
  launch(job.grid_x, job.grid_y, kThreads, kernel, end_copies);
#else
  const auto kernel = [&] {
    gemm(job.m, job.n, job.k, job.alpha, job.beta, reinterpret_cast<const __half*>(a.data()),
         reinterpret_cast<const __half*>(b.data()), source, target, job.lda, job.ldb, job.ldd,
         job.ldd);
  };
  launch(job.grid_x, job.grid_y, cutlass_study::kThreads, kernel, [] {});
#endif
  for (std::size_t i = job.bytes_d; i < d.size(); ++i) {
    if (d[i] != 0xff) return 4;
  }
  std::FILE* output = std::fopen(arguments[2], "wb");
  const bool written = std::fwrite(d.data(), 1, job.bytes_d, output) == std::size_t(job.bytes_d);
  return std::fclose(output) == 0 && written ? 0 : 2;
}
