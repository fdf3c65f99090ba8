package integration_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const pythonFolder = "../clients/python"

// python returns a Python that has PyMongo, which scripts/fetch-pymongo brings.
func python(t *testing.T) string {
	t.Helper()
	pythonOnce.Do(func() {
		out, err := exec.Command("../scripts/fetch-pymongo").Output()
		if err == nil {
			pythonFound = strings.TrimSpace(string(out))
		}
	})
	if pythonFound == "" {
		t.Fatal("no Python 3.9 or later with PyMongo 3.11 or later: run 'make pymongo', or install the package python3-pymongo, or set DBCONTROLLER_TEST_PYTHON to a Python that has it")
	}
	return pythonFound
}

var (
	pythonOnce  sync.Once
	pythonFound string
)

// pythonCommand runs Python in the client's folder, and leaves nothing there.
func pythonCommand(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, python(t), args...)
	cmd.Dir = pythonFolder
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

// TestPythonClient runs the client's own tests.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if out, err := pythonCommand(ctx, t, "-W", "error::SyntaxWarning", "-m", "unittest").CombinedOutput(); err != nil {
		t.Errorf("python -m unittest: %v\n%s", err, out)
	}
	if same := func(name string) bool {
		ours, err1 := os.ReadFile(filepath.Join("..", name))
		theirs, err2 := os.ReadFile(filepath.Join(pythonFolder, name))
		return err1 == nil && err2 == nil && string(ours) == string(theirs)
	}; !same("LICENSE") {
		t.Error("clients/python/LICENSE is not the project's")
	}
}

func inPython(t *testing.T) func(part applicationPart) *exec.Cmd {
	t.Helper()
	python(t)
	return func(part applicationPart) *exec.Cmd {
		cmd := pythonCommand(context.WithoutCancel(t.Context()), t, filepath.Join("scenario", "shop.py"))
		cmd.Env = append(cmd.Env, applicationVariable+"="+part.text(t))
		return cmd
	}
}
