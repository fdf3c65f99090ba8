package cli

import (
	"path/filepath"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"dbcontroller.dev/cmd/internal/process"
	"dbcontroller.dev/config"
)

func etcdCommand(host process.Host) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "etcd --config FILE",
		Short: "Host an etcd for this machine, for a service's own controllers, which have none in them",
		Long: "Host an etcd for this machine, as 'run --embedded-etcd' does, in a process of its own. Controllers and\n" +
			"servers of the same configuration find it through dataDir. It ends with SIGTERM, and has the same\n" +
			"data when it is started again.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usage("no configuration: give one with --config FILE")
			}
			cfg, err := config.Load(file, nil)
			if err != nil {
				return err
			}
			if len(cfg.Etcd.Endpoints) > 0 {
				return usage("%s names etcd.endpoints, so nobody would look for an etcd of this machine: remove them", filepath.Base(cfg.Path))
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
