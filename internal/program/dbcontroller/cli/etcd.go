package cli

import (
	"path/filepath"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/process"
)

func etcdCommand(host process.Host) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "etcd --config FILE",
		Short: "Run a local etcd for controllers that do not embed one",
		Long: "Run a local etcd in a process of its own, as 'run --embedded-etcd' does within a controller.\n" +
			"Controllers and servers with the same configuration find it through dataDir. It ends with SIGTERM\n" +
			"and keeps its data.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return exit.Usagef("no configuration given: use --config FILE")
			}
			cfg, err := config.Load(file, nil)
			if err != nil {
				return err
			}
			// Other processes with this configuration would use these endpoints and never find this
			// etcd.
			if len(cfg.Etcd.Endpoints) > 0 {
				return exit.Usagef("%s sets etcd.endpoints, so no process would use an etcd on this machine: remove the setting", filepath.Base(cfg.Path))
			}
			log := process.NewLogger(zapcore.InfoLevel)
			dir := process.DataDir(cfg)
			endpoints, end, err := host(cmd.Context(), dir, log)
			if err != nil {
				return err
			}
			log.Info("etcd runs", zap.Strings("endpoints", endpoints), zap.String("folder", dir))
			<-cmd.Context().Done()
			return end()
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file (YAML); see docs/configuration.md")
	return cmd
}
