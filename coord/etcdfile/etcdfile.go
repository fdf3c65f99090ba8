// Package etcdfile is how processes of one machine find the etcd that one of them hosts: a
// file in its data folder names the address.
//
// It neither hosts an etcd (embedetcd does) nor connects to one, so that a program that only
// looks for it has none in it.
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

// Publish replaces the file of a directory by a rename, so that a reader sees an old one or a whole
// new one.
func Publish(dir, endpoint string) error {
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
