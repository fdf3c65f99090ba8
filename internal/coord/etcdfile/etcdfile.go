// Package etcdfile locates the etcd that a process of this machine runs: a file in its data folder
// has the address.
//
// The package neither runs an etcd, as embedetcd does, nor connects to one. So a program that only
// looks for the address does not contain etcd.
//
// It is not for users and may change with any version.
package etcdfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"dbcontroller.dev/internal/base/watchedfile"
)

// endpointFile has one URL on a line for each endpoint. See docs/formats.md.
const endpointFile = "etcd-endpoint"

// Find returns the endpoints of the embedded etcd in a directory, as the latest Start wrote them.
// The server may not be running. The error is fs.ErrNotExist if no server was ever started. A file that
// another user can write is refused: it would lead this process to an etcd of that user.
func Find(dir string) ([]string, error) {
	data, err := watchedfile.Read("endpoint", watchedfile.Own(filepath.Join(dir, endpointFile)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no embedded etcd was started in %s: %w", dir, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("find embedded etcd: %w", err)
	}
	endpoints := strings.Fields(string(data[0]))
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("find embedded etcd: %s in %s is empty", endpointFile, dir)
	}
	return endpoints, nil
}

// Publish replaces the file of a directory by a rename. A reader sees either the old file or the
// complete new one.
func Publish(dir, endpoint string) error {
	// The temporary file is in the same folder, so that the rename is atomic.
	f, err := os.CreateTemp(dir, endpointFile+"-*")
	if err != nil {
		return fmt.Errorf("write endpoint: %w", err)
	}
	_, err = f.WriteString(endpoint + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name()) // remove the temporary file
		return fmt.Errorf("write endpoint: %w", err)
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, endpointFile)); err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write endpoint: %w", err)
	}
	return nil
}
