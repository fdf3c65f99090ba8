package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
	"dbcontroller.dev/internal/program/process"
)

// TestEtcd: an etcd of this machine is hosted where the configuration says until the command is
// told to end, and not where nobody would look for it.
func TestEtcd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := strings.TrimSuffix(clitest.KindsConfig, "kinds:\n")
	file := func(name, more string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(more+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	own, elsewhere := file("own.yaml", "dataDir: here\n"), file("elsewhere.yaml", "etcd: {endpoints: [\"127.0.0.1:1\"]}\n")
	run := func(host process.Host, args ...string) error {
		cmd := Program{Etcd: host}.Command()
		cmd.SetArgs(args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // it is told to end at once
		return cmd.ExecuteContext(ctx)
	}
	var hosted, ended []string
	host := func(_ context.Context, dir string, _ *zap.Logger) ([]string, func() error, error) {
		hosted = append(hosted, filepath.Base(dir))
		return []string{"unix://x"}, func() error { ended = append(ended, filepath.Base(dir)); return nil }, nil
	}
	if err := run(host, "etcd", "--config", own); err != nil || strings.Join(hosted, " ") != "here" || strings.Join(ended, " ") != "here" {
		t.Errorf("%v: hosted in %v, ended in %v", err, hosted, ended)
	}
	failed := errors.New("in use by another process")
	for _, c := range []struct {
		host process.Host
		args []string
		want string
	}{
		{host, []string{"etcd"}, "no configuration given: use --config FILE"},
		{host, []string{"etcd", "--config", elsewhere}, "elsewhere.yaml sets etcd.endpoints"},
		{func(context.Context, string, *zap.Logger) ([]string, func() error, error) { return nil, nil, failed },
			[]string{"etcd", "--config", own}, failed.Error()},
		{nil, []string{"run", "--embedded-etcd", "--config", own}, "no etcd is built into this program: run 'dbcontroller etcd --config " + own + "'"},
		{nil, []string{"etcd", "--config", own}, "unknown command"},
	} {
		err := run(c.host, c.args...)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.HasPrefix(c.want, "no etcd") && strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
	if len(hosted) != 1 {
		t.Errorf("hosted in %v", hosted)
	}
}
