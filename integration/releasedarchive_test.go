package integration_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// spare are files of a MongoDB and an etcd that ended well and do not need them again.
func spare(name string) bool {
	return strings.HasPrefix(name, "mongod/journal/") || strings.HasPrefix(name, "mongod/_tmp/") || strings.HasSuffix(name, ".lock") || strings.HasSuffix(name, ".tmp")
}

// packTo writes folders and further files, each under its name, into an archive.
func packTo(path string, folders map[string]string, files map[string][]byte) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	zip, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(zip)
	put := func(name string, data []byte) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data))}); err != nil {
			return err
		}
		_, err := w.Write(data)
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := put(name, files[name]); err != nil {
			return err
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		dir := os.DirFS(folders[folder])
		err := fs.WalkDir(dir, ".", func(path string, d fs.DirEntry, err error) error {
			name := folder + "/" + path
			if err != nil || d.IsDir() || spare(name) {
				return err
			}
			data, err := fs.ReadFile(dir, path)
			if err != nil {
				return err
			}
			return put(name, data)
		})
		if err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), zip.Close())
}

// unpackTo is the reverse of packTo.
func unpackTo(path, dir string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	zip, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	root, err := os.OpenRoot(dir) // no name leads out of it
	if err != nil {
		return err
	}
	defer root.Close()
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		data, err := io.ReadAll(r)
		if err == nil {
			err = root.MkdirAll(filepath.Dir(h.Name), 0o700)
		}
		if err == nil {
			err = root.WriteFile(h.Name, data, 0o600)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
}
