package embedetcd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"dbcontroller.dev/coord/etcdfile"
)

const (
	scheme = "unix://"
	// socketFolder is in the data folder, which itself may be open to others.
	socketFolder = "socket"
	socketName   = "etcd"
	// longest is the most bytes that a socket's path has on every system; the least is 104
	// with the end mark, on macOS.
	longest = 103
)

// socketPath makes the folder of the socket and returns the socket's path. A data folder
// whose path is too long for a socket gets one among the temporary files, which is found by
// the endpoint file, and used again as long as it is ours.
func socketPath(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(dir, socketFolder)
	if len(filepath.Join(folder, socketName)) <= longest {
		return filepath.Join(folder, socketName), private(folder)
	}
	if before, err := etcdfile.Find(dir); err == nil {
		path := strings.TrimPrefix(before[0], scheme)
		if filepath.Base(path) == socketName && private(filepath.Dir(path)) == nil {
			return path, nil
		}
	}
	if folder, err = os.MkdirTemp("", "dbcontroller-etcd-"); err != nil {
		return "", fmt.Errorf("folder of the socket: %w", err)
	}
	return filepath.Join(folder, socketName), private(folder)
}

// private makes a folder, or makes sure of one: nobody but its owner, who we are, may
// enter. Changing the mode fails for everybody else.
func private(folder string) error {
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("folder of the socket: %w", err)
	}
	if info, err := os.Lstat(folder); err != nil || !info.IsDir() {
		return fmt.Errorf("folder of the socket: %s is no folder: remove it", folder)
	}
	if err := os.Chmod(folder, 0o700); err != nil { //nolint:gosec // a folder is entered by x
		return fmt.Errorf("folder of the socket: %w", err)
	}
	return nil
}
