package embedetcd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// endpointFile holds one URL on a line for each endpoint. See docs/formats.md.
const endpointFile = "etcd-endpoint"

// Find returns the endpoints of the embedded etcd of a directory, as the latest Start
// wrote them. Whether it runs now shows when connecting. The error is fs.ErrNotExist
// where none was ever started.
func Find(dir string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, endpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no embedded etcd was started in %s: %w", dir, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("find embedded etcd: %w", err)
	}
	endpoints := strings.Fields(string(data))
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("find embedded etcd: %s in %s is empty", endpointFile, dir)
	}
	return endpoints, nil
}

// publish replaces the file by a rename, so that a reader sees an old one or a whole
// new one.
func publish(dir, endpoint string) error {
	f, err := os.CreateTemp(dir, endpointFile+"-*")
	if err != nil {
		return fmt.Errorf("write endpoint: %w", err)
	}
	_, err = f.WriteString(endpoint + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name()) // it would only lie about
		return fmt.Errorf("write endpoint: %w", err)
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, endpointFile)); err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write endpoint: %w", err)
	}
	return nil
}

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
	if before, err := Find(dir); err == nil {
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
