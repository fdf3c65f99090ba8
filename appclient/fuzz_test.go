package appclient

import (
	"os"
	"path/filepath"
	"testing"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

// FuzzMemory: a file has a location at which an application may begin, or an error.
func FuzzMemory(f *testing.F) {
	m := memory{file: filepath.Join(f.TempDir(), "memory"), deployment: "services/a/deployments/b"}
	if err := m.write(m.deployment, &pb.Location{State: pb.Location_OPEN, Version: "v1"}, map[string]string{"users": "00"}); err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile(m.file)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"format":1,"deployment":"services/a/deployments/b","location":{"state":"HOLD"}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(m.file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if loc, _, err := m.read(); err == nil && (loc.GetState() != pb.Location_OPEN || m.deploymentOf() != m.deployment) {
			t.Errorf("%q is the location %v of %q", text, loc, m.deploymentOf())
		}
	})
}
