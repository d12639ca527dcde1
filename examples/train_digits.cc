// Trains the digits classifier from an artifact, without Python: `python examples/digits.py --export FOLDER`
// writes what it reads. `train_digits FOLDER [STEPS]` trains, resuming from FOLDER/digits.checkpoint if there
// is one, and prints the accuracy on the rows it trained on.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <aicf/aicf.h>

namespace {

using aicf::Tensor;
using aicf::TensorView;

constexpr int64_t kFeatures = 64, kClasses = 10, kCheckpointEvery = 500;

struct Digits {
  Tensor images, labels;
  int64_t count() const { return labels.count(); }
};

// The batches of `aicf train`: rows shuffled anew in each epoch.
class Batches {
 public:
  Batches(const Digits& digits, int64_t batch)
      : digits_(digits), images_(aicf::DType::f32, {batch, kFeatures}), labels_(aicf::DType::i64, {batch}) {}

  std::vector<TensorView> batch(int64_t number) {
    const int64_t size = labels_.count(), per_epoch = digits_.count() / size;
    if (const int64_t epoch = number / per_epoch; epoch != epoch_)
      order_ = aicf::shuffled_rows(digits_.count(), 0, epoch_ = epoch);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t row = order_[static_cast<size_t>(number % per_epoch * size + i)];
      std::memcpy(images_.as<float>() + i * kFeatures, digits_.images.as<float>() + row * kFeatures,
                  kFeatures * sizeof(float));
      labels_.as<int64_t>()[i] = digits_.labels.as<int64_t>()[row];
    }
    return {images_, labels_};
  }

 private:
  const Digits& digits_;
  Tensor images_, labels_;
  std::vector<int64_t> order_;
  int64_t epoch_ = -1;
};

// On whole batches of the entry "eval".
double accuracy(aicf::TrainStep& step, const Digits& digits) {
  const int64_t rows = step.executable().model().inputs("eval")[0].sizes[0].value();
  int64_t right = 0, seen = 0;
  for (; seen + rows <= digits.count(); seen += rows) {
    const TensorView images(digits.images.as<float>() + seen * kFeatures, {rows, kFeatures});
    const Tensor scores = step.run_entry("eval", {images})[0];
    for (int64_t row = 0; row < rows; ++row) {
      const float* at = scores.as<float>() + row * kClasses;
      int64_t best = 0;
      for (int64_t c = 1; c < kClasses; ++c)
        if (at[c] > at[best]) best = c;
      right += best == digits.labels.as<int64_t>()[seen + row] ? 1 : 0;
    }
  }
  return static_cast<double>(right) / static_cast<double>(seen);
}

int run(const std::string& folder, int64_t steps) {
  const Digits digits{aicf::read_npy(folder + "/x.npy"), aicf::read_npy(folder + "/y.npy")};
  const std::string checkpoint = folder + "/digits.checkpoint";
  aicf::TrainStep step = aicf::TrainStep::load(folder + "/step.aicf");
  if (std::filesystem::exists(checkpoint)) step.load_checkpoint(checkpoint);
  Batches batches(digits, step.executable().model().inputs("step")[1].sizes[0].value());
  float loss = 0;
  for (int64_t number = step.steps(); number < steps; ++number) {
    loss = step.run(batches.batch(number))[0].as<float>()[0];
    if ((number + 1) % kCheckpointEvery == 0) step.save_checkpoint(checkpoint);
  }
  step.require_finite();
  step.save(folder + "/trained.aicf");
  std::printf("%lld steps, loss %.4f, state %s\naccuracy: %.2f %%\n", static_cast<long long>(step.steps()),
              static_cast<double>(loss), step.hash().c_str(), 100 * accuracy(step, digits));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: train_digits FOLDER [STEPS]\n");
    return 2;
  }
  try {
    return run(argv[1], argc > 2 ? std::atoll(argv[2]) : 1000);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
