package integration_test

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// nodeClient installs what the client needs, and returns the application's script.
func nodeClient(t *testing.T) string {
	t.Helper()
	const folder = "../clients/node"
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: this test needs Node.js 20.19 or later, with npm", err)
		}
	}
	nodeOnce.Do(func() {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--prefer-offline")
		cmd.Dir = folder
		if out, err := cmd.CombinedOutput(); err != nil {
			errNode = fmt.Errorf("npm ci in clients/node: %w\n%s", err, out)
		}
	})
	if errNode != nil {
		t.Fatal(errNode)
	}
	return folder + "/scenario/application.js"
}

var (
	nodeOnce sync.Once
	errNode  error
)

// TestNodeClient runs the client's own tests.
func TestNodeClient(t *testing.T) {
	t.Parallel()
	nodeClient(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "test")
	cmd.Dir = "../clients/node"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("npm test: %v\n%s", err, out)
	}
}
