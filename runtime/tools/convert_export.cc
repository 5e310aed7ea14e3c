// ds-convert export: a checkpoint's parameters as one safetensors file.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "runtime/base/error.h"
#include "runtime/checkpoint/export.h"
#include "runtime/plan/manifest.h"
#include "runtime/tools/convert.h"

namespace ds {

void AddExportCommand(CLI::App& app) {
  struct Options {
    std::string checkpoint, output, dtype = "f32";
    bool force = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "export",
      "Writes a checkpoint's parameters, whole and by name, to one safetensors file that other programs read.\n\n"
      "Example:\n"
      "  ds-convert export --checkpoint runs/quickstart/latest --output model.safetensors --dtype bf16");
  command->add_option("--checkpoint", options->checkpoint, "A checkpoint, or a run's directory: its newest")
      ->required();
  command->add_option("--output,-o", options->output, "The file to write")->required();
  command->add_option("--dtype", options->dtype, "Elements of the file")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  command->add_flag("--force", options->force, "Replace the output where it exists");
  command->callback([options] {
    const std::filesystem::path folder = ResolveCheckpoint(options->checkpoint);
    const DType dtype = options->dtype == "bf16" ? DType::bf16 : DType::f32;
    const int64_t elements = ExportParameters(folder, options->output, dtype, options->force);
    std::printf("%s: %lld parameters of %s as %s\n", options->output.c_str(), static_cast<long long>(elements),
                folder.c_str(), options->dtype.c_str());
  });
}

}  // namespace ds
