package samples_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"dbcontroller.dev/internal/program/server/samples"
)

// TestAuditFile: an audit that cannot be written is said at the start.
func TestAuditFile(t *testing.T) {
	t.Parallel()
	own := flag.NewFlagSet("server", flag.ContinueOnError)
	samples.Service().Flags(own)
	fs := pflag.NewFlagSet("server", pflag.ContinueOnError) // as the server parses them
	fs.AddGoFlagSet(own)
	dir := t.TempDir()
	if err := fs.Parse([]string{"--audit", dir + "/none/audit.jsonl"}); err == nil || !strings.Contains(err.Error(), "--audit") || !strings.Contains(err.Error(), "no such file") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a folder that is not there: %v", err)
	}
	if err := fs.Parse([]string{"--audit", dir + "/audit.jsonl"}); err != nil {
		t.Error(err)
	}
}
