package appclient

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

// TestMemoryOfOthers: a memory that other users can write is not believed.
func TestMemoryOfOthers(t *testing.T) {
	t.Parallel()
	m := memory{file: filepath.Join(t.TempDir(), "memory")}
	if err := m.write("services/a/deployments/b", &pb.Location{State: pb.Location_OPEN, Version: "v1"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.read(); err != nil || m.deploymentOf() == "" {
		t.Errorf("its own memory is refused: %v", err)
	}
	if err := os.Chmod(m.file, 0o622); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.read(); err == nil || !strings.Contains(err.Error(), "chmod go-w it") || m.deploymentOf() != "" {
		t.Errorf("error is %v, and the deployment %q", err, m.deploymentOf())
	}
}
