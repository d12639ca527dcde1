// A fuzz target without libFuzzer: mutations drawn by a seed, tried in child processes, so that every
// compiler builds it and what breaks one input leaves the rest. Coverage does not guide it; the target's own
// mutator does.
//   mutate_aicf --runs 10000 [--seed S] [--seeds FOLDER] [--at INDEX] [--keep FOLDER]
// A finding is a signal, more than 20 s or more than 4 GiB of address space. Prints the seed, and for each
// finding the line that runs it again; --keep gets its input. Exit 1 if there is any.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerInitialize(int*, char***);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxSize = 64 << 10;
constexpr unsigned kSeconds = 20;
constexpr rlim_t kAddressSpace = rlim_t{4} << 30;
constexpr int64_t kBatch = 500;  // inputs of a child

std::mt19937_64& bytes_random() {
  static std::mt19937_64 random;
  return random;
}

using Bytes = std::vector<uint8_t>;

std::vector<Bytes> read_seeds(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& file : fs::directory_iterator(folder))
    if (file.is_regular_file() && file.file_size() <= kMaxSize) paths.push_back(file.path().string());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> seeds;
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

// Input number `index` of the seed: the same for ever.
Bytes input_of(const std::vector<Bytes>& seeds, uint64_t seed, int64_t index) {
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15U + static_cast<uint64_t>(index));
  bytes_random().seed(random());
  Bytes bytes = seeds[random() % seeds.size()];
  size_t size = bytes.size();
  bytes.resize(kMaxSize);
  // Mostly one change: of many the first that is refused hides the others.
  const uint64_t rounds = random() % 4 == 0 ? 2 + random() % 3 : 1;
  for (uint64_t i = 0; i < rounds; ++i)
    size = LLVMFuzzerCustomMutator(bytes.data(), size, kMaxSize, static_cast<unsigned>(random()));
  bytes.resize(size);
  return bytes;
}

struct Options {
  int64_t runs = 1000, at = -1;
  uint64_t seed = std::random_device()();
  std::string seeds, keep;
};

// A status that is no finding: 0.
int run_batch(const std::vector<Bytes>& seeds, const Options& options, int64_t end,
              std::atomic<int64_t>* at) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit space = {kAddressSpace, kAddressSpace}, none = {0, 0};
    setrlimit(RLIMIT_AS, &space);
    setrlimit(RLIMIT_CORE, &none);
    for (; *at < end; ++*at) {
      alarm(kSeconds);
      const Bytes bytes = input_of(seeds, options.seed, *at);
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

std::string describe(int status) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) return "more than 20 s";
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

// Few changes of bytes: flipped, set, inserted, taken out, doubled.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size) {
  std::mt19937_64& random = bytes_random();
  for (uint64_t i = 0, changes = 1 + random() % 3; i < changes; ++i) {
    const size_t at = size == 0 ? 0 : random() % size;
    const size_t length = size == 0 ? 0 : 1 + random() % std::min<size_t>(size - at, 16);
    switch (random() % 6) {
      case 0:
        if (size > 0) data[at] ^= static_cast<uint8_t>(1U << (random() % 8));
        break;
      case 1:
        if (size > 0) data[at] = static_cast<uint8_t>(random());
        break;
      case 2:
        if (size > 0) data[at] = random() % 2 != 0 ? 0xff : 0;
        break;
      case 3:
        if (size < max_size) {
          std::copy_backward(data + at, data + size, data + size + 1);
          data[at] = static_cast<uint8_t>(random());
          ++size;
        }
        break;
      case 4:
        std::copy(data + at + length, data + size, data + at);
        size -= length;
        break;
      default:
        if (size + length <= max_size && length > 0) {
          std::copy_backward(data + at, data + size, data + size + length);
          size += length;
        }
    }
  }
  return size;
}

int main(int argc, char** argv) {
  Options options;
  std::map<std::string, std::string> words;
  for (int i = 1; i + 1 < argc; i += 2) words[argv[i]] = argv[i + 1];
  if (words.count("--runs")) options.runs = std::stoll(words["--runs"]);
  if (words.count("--seed")) options.seed = std::stoull(words["--seed"]);
  if (words.count("--at")) options.at = std::stoll(words["--at"]);
  options.seeds = words["--seeds"];
  options.keep = words["--keep"];
  std::printf("seed %llu\n", static_cast<unsigned long long>(options.seed));
  std::fflush(stdout);

  // The target's own seeds, which it writes in a process that then ends.
  std::string own = (fs::temp_directory_path() / "aicf_seeds_XXXXXX").string();
  if (mkdtemp(own.data()) == nullptr) return 3;
  if (const pid_t child = fork(); child == 0) {
    setenv("AICF_FUZZ_SEEDS", own.c_str(), 1);
    LLVMFuzzerInitialize(&argc, &argv);
    _exit(1);
  } else {
    waitpid(child, nullptr, 0);
  }
  std::vector<Bytes> seeds = read_seeds(own);
  fs::remove_all(own);
  if (!options.seeds.empty())
    for (Bytes& bytes : read_seeds(options.seeds)) seeds.push_back(std::move(bytes));
  if (seeds.empty()) return 3;
  LLVMFuzzerInitialize(&argc, &argv);

  auto* at = new (mmap(nullptr, sizeof(std::atomic<int64_t>), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int64_t>(0);
  int64_t found = 0;
  const int64_t first = options.at >= 0 ? options.at : 0, end = options.at >= 0 ? first + 1 : options.runs;
  for (*at = first; *at < end;) {
    const int status = run_batch(seeds, options, std::min(end, *at + kBatch), at);
    if (status == 0) continue;
    ++found;
    std::printf("FOUND %s\n  again: %s --seed %llu --at %lld%s\n", describe(status).c_str(), argv[0],
                static_cast<unsigned long long>(options.seed), static_cast<long long>(*at),
                options.seeds.empty() ? "" : (" --seeds " + options.seeds).c_str());
    std::fflush(stdout);
    if (!options.keep.empty()) {
      fs::create_directories(options.keep);
      const Bytes bytes = input_of(seeds, options.seed, *at);
      const std::string name = options.keep + "/" + std::to_string(options.seed) + "-" + std::to_string(*at);
      std::ofstream(name, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
    ++*at;
  }
  std::printf("%lld inputs of %zu seeds, %lld found\n", static_cast<long long>(end - first), seeds.size(),
              static_cast<long long>(found));
  return found > 0 ? 1 : 0;
}
