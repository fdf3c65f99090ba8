package spectest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
)

// The last driver whose module has the files of the specifications. Later ones fetch them by git.
const (
	module  = "go.mongodb.org/mongo-driver"
	version = "v1.17.10"
	sum     = "h1:kdAgQvu8TROXZpSkJQd5wzfaNCCrMbpZyKFtQ6qkPCE="
)

// Fetch returns the folder of the driver's module. It downloads the module if Go's cache lacks it.
func Fetch(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module+"@"+version)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var got struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(out, &got); jsonErr != nil || got.Error != "" || err != nil {
		return "", fmt.Errorf("download %s@%s: %v %s%s", module, version, err, got.Error, stderr.Bytes())
	}
	if got.Sum != sum {
		return "", fmt.Errorf("download %s@%s: the sum is %s, want %s", module, version, got.Sum, sum)
	}
	return got.Dir, nil
}
