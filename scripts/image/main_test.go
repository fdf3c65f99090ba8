package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// programs writes a program for each of two platforms.
func programs(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, arch := range []string{"amd64", "arm64"} {
		name := filepath.Join(t.TempDir(), arch)
		if err := os.WriteFile(name, []byte("program for "+arch), 0o600); err != nil {
			t.Fatal(err)
		}
		out = append(out, "linux/"+arch+"="+name)
	}
	return out
}

// unpack extracts an archive, and reads it as an image index, and as Docker without containerd does.
func unpack(t *testing.T, file string) (v1.ImageIndex, []legacy) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := tar.NewReader(bytes.NewReader(content))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, h.Name)
		text, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var loaded []legacy
	if err := json.Unmarshal(text, &loaded); err != nil {
		t.Fatal(err)
	}
	for _, l := range loaded {
		for _, name := range append(l.Layers, l.Config) {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
	}
	return index, loaded
}

// TestImage has the program of each platform, and runs it without root.
func TestImage(t *testing.T) {
	t.Parallel()
	at := time.Unix(1767225600, 0).UTC()
	file := filepath.Join(t.TempDir(), "image.tar")
	all := programs(t)
	if err := write(file, "v1.2.3", at, all); err != nil {
		t.Fatal(err)
	}
	top, loaded := unpack(t, file)
	if len(loaded) != 2 || loaded[1].RepoTags[0] != "dbcontroller:v1.2.3-arm64" || len(loaded[1].Layers) != 1 {
		t.Error(loaded)
	}
	if err := validate.Index(top); err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["io.containerd.image.name"] != "docker.io/library/dbcontroller:v1.2.3" {
		t.Fatal(manifest, err)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	platforms, err := index.IndexManifest()
	if err != nil || len(platforms.Manifests) != 2 {
		t.Fatal(platforms, err)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		d := platforms.Manifests[i]
		if d.Platform.OS != "linux" || d.Platform.Architecture != arch {
			t.Error(d.Platform)
		}
		image, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Config.User != user || !slices.Equal(config.Config.Entrypoint, []string{"/dbcontroller"}) || config.Architecture != arch || !config.Created.Equal(at) {
			t.Errorf("%+v", config)
		}
		layers, err := image.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatal(layers, err)
		}
		content, err := layers[0].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		r := tar.NewReader(content)
		h, err := r.Next()
		if err != nil || h.Name != "dbcontroller" || h.Mode != 0o755 || h.Uid != 0 {
			t.Fatal(h, err)
		}
		if text, err := io.ReadAll(r); err != nil || string(text) != "program for "+arch {
			t.Errorf("%q, %v", text, err)
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Error("there is another file", err)
		}
	}
}

// TestSameBytes of the same programs.
func TestSameBytes(t *testing.T) {
	t.Parallel()
	all := programs(t)
	var made [2][]byte
	for i := range made {
		file := filepath.Join(t.TempDir(), "image.tar")
		if err := write(file, "v1", time.Unix(5, 0), all); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		made[i] = content
	}
	if !bytes.Equal(made[0], made[1]) {
		t.Error("two images of the same programs differ")
	}
}

// TestRefuses writes no file.
func TestRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "image.tar")
	for want, args := range map[string][]string{
		"give -out":              nil,
		"is not PLATFORM=":       {"linux/amd64"},
		"no such file":           {"linux/amd64=" + filepath.Join(t.TempDir(), "none")},
		`"bin/x" is not`:         {"bin/x"},
		`"linux=bin/x" is not P`: {"linux=bin/x"},
	} {
		if err := write(file, "v1", time.Now(), args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a refused call wrote a file")
	}
}
