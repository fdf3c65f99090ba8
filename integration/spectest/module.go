package spectest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
)

// The last driver whose module has the files of the specifications. Later ones fetch them by git.
const (
	module  = "go.mongodb.org/mongo-driver"
	version = "v1.17.10"
	sum     = "h1:kdAgQvu8TROXZpSkJQd5wzfaNCCrMbpZyKFtQ6qkPCE="
)

// ErrNoModule means that the driver's module cannot be downloaded.
var ErrNoModule = errors.New("cannot download")

// Tests are the driver's tests, ready to run.
type Tests struct {
	folder   string // of the module
	programs string // folder of the programs
}

// Build downloads the driver's module, if Go's cache lacks it, and builds its tests into a folder.
func Build(ctx context.Context, programs string) (*Tests, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module+"@"+version)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var got struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(out, &got); jsonErr != nil || got.Error != "" || err != nil {
		return nil, fmt.Errorf("%w %s@%s: %v %s%s", ErrNoModule, module, version, err, got.Error, stderr.Bytes())
	}
	if got.Sum != sum {
		return nil, fmt.Errorf("download %s@%s: the sum is %s, want %s", module, version, got.Sum, sum)
	}
	t := &Tests{folder: got.Dir, programs: programs}
	args := []string{"test", "-c", "-mod=readonly", "-o", programs + string(filepath.Separator)}
	cmd = exec.CommandContext(ctx, "go", append(args, "./"+root, "./"+path.Join(root, unified))...)
	cmd.Dir = t.folder
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the tests of %s@%s: %w\n%s", module, version, err, out)
	}
	return t, nil
}

// root is the folder of the tests, and unified that of those in the newer format below it.
const (
	root    = "mongo/integration"
	unified = "unified"
)

// command prepares a run of the tests of a package.
func (t *Tests) command(ctx context.Context, folder, uri string, args ...string) *exec.Cmd {
	name := path.Base(path.Join(root, folder)) + ".test"
	cmd := exec.CommandContext(ctx, filepath.Join(t.programs, name), args...) // #nosec G204 -- that Build has built
	cmd.Dir = filepath.Join(t.folder, filepath.FromSlash(root), folder)
	cmd.Env = append(os.Environ(), "MONGODB_URI="+uri)
	return cmd
}
