package embedetcd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"dbcontroller.dev/internal/coord/etcdfile"
)

const (
	scheme = "unix://"
	// socketFolder lies in the data folder, which other users may be able to enter.
	socketFolder = "socket"
	socketName   = "etcd"
	// longest is the maximum length of a socket's path in bytes on all systems. macOS has the
	// lowest limit, 104 with the final zero.
	longest = 103
)

// socketPath creates the folder of the socket and returns the socket's path. If the path of the
// data folder is too long for a socket, it uses a temporary folder. The endpoint file names that
// folder, and the next start uses it again while we own it.
func socketPath(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(dir, socketFolder)
	if len(filepath.Join(folder, socketName)) <= longest {
		return filepath.Join(folder, socketName), private(folder)
	}
	// A running client may know the earlier address, so keep it if possible.
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

// private creates a folder, or checks an existing one, so that only its owner may enter. It fails
// if this user is not the owner, because only the owner can change the mode.
func private(folder string) error {
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("folder of the socket: %w", err)
	}
	// A symbolic link could lead to a folder of another user.
	if info, err := os.Lstat(folder); err != nil || !info.IsDir() {
		return fmt.Errorf("folder of the socket: %s is no folder: remove it", folder)
	}
	if err := os.Chmod(folder, 0o700); err != nil { // #nosec G302 -- a folder needs x to be entered
		return fmt.Errorf("folder of the socket: %w", err)
	}
	return nil
}
