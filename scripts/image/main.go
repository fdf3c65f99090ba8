// Command image writes the container image of dbcontroller without Docker:
//
//	image -version VERSION -time SECONDS -out FILE PLATFORM=PROGRAM...
//
// The image has the program and nothing else, for each PLATFORM (linux/amd64). FILE is a tar archive
// in the layout of the Open Container Initiative, which podman, skopeo and crane read, and a Docker
// that stores images in containerd. Any other Docker loads an image for each platform from it, whose
// tag ends with the architecture.
// It runs without root, and on a read-only file system. Only --embedded-etcd needs a folder to write
// to. The same programs give the same bytes.
//
// The folder is a module of its own: no user of dbcontroller needs a library for images. Begin to read
// at write.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is nobody's in a Debian or Red Hat system, and the one of distroless images.
const user = "65532:65532"

func main() {
	version := flag.String("version", "", "version of the program")
	seconds := flag.Int64("time", 0, "time of all files, Unix seconds")
	out := flag.String("out", "", "file to write")
	flag.Parse()
	if err := write(*out, *version, time.Unix(*seconds, 0).UTC(), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// write writes the image of all programs. After an error there is no file.
func write(out, version string, at time.Time, programs []string) (err error) {
	if out == "" || version == "" || len(programs) == 0 {
		return errors.New("give -out, -version, and a program for each platform, such as linux/amd64=bin/dbcontroller")
	}
	var loaded []legacy
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		platform, program, ok := strings.Cut(p, "=")
		system, arch, both := strings.Cut(platform, "/")
		if !ok || !both {
			return fmt.Errorf("%q is not PLATFORM=PROGRAM, such as linux/amd64=bin/dbcontroller", p)
		}
		image, err := of(program, version, system, arch, at)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		l, err := legacyOf(image, "dbcontroller:"+version+"-"+arch)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		loaded = append(loaded, l)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: system, Architecture: arch}}})
	}
	dir, err := os.MkdirTemp("", "dbcontroller-image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// Programs that load the archive take the name of the image from these annotations.
	name := map[string]string{"io.containerd.image.name": "docker.io/library/dbcontroller:" + version, "org.opencontainers.image.ref.name": version}
	if err := path.AppendIndex(index, layout.WithAnnotations(name)); err != nil {
		return err
	}
	text, err := json.Marshal(loaded)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o600); err != nil {
		return err
	}
	archive, err := pack(dir, at)
	if err != nil {
		return err
	}
	return os.WriteFile(out, archive, 0o644)
}

// legacy is an entry of manifest.json, from which Docker loads an image without containerd.
type legacy struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func legacyOf(image v1.Image, tag string) (legacy, error) {
	config, err := image.ConfigName()
	if err != nil {
		return legacy{}, err
	}
	l := legacy{Config: "blobs/sha256/" + config.Hex, RepoTags: []string{tag}}
	layers, err := image.Layers()
	if err != nil {
		return l, err
	}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return l, err
		}
		l.Layers = append(l.Layers, "blobs/sha256/"+digest.Hex)
	}
	return l, nil
}

// of returns the image of one platform.
func of(program, version, system, arch string, at time.Time) (v1.Image, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	if err := w.WriteHeader(&tar.Header{Name: "dbcontroller", Mode: 0o755, Size: int64(len(content)), ModTime: at, Format: tar.FormatUSTAR}); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression))
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layer)
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, &v1.ConfigFile{
		OS: system, Architecture: arch, Created: v1.Time{Time: at},
		RootFS:  rootOf(image),
		History: []v1.History{{Created: v1.Time{Time: at}, CreatedBy: "scripts/image"}},
		Config: v1.Config{
			User: user, Entrypoint: []string{"/dbcontroller"},
			Labels: map[string]string{"org.opencontainers.image.title": "dbcontroller", "org.opencontainers.image.version": version},
		},
	})
}

// rootOf returns the list of an image's layers, which a new configuration must keep.
func rootOf(image v1.Image) v1.RootFS {
	config, err := image.ConfigFile()
	if err != nil {
		return v1.RootFS{} // mutate.ConfigFile reports it
	}
	return config.RootFS
}

// pack returns a folder as a tar archive, in which nothing is of this machine.
func pack(dir string, at time.Time) ([]byte, error) {
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(rel), Mode: 0o644, Size: int64(len(content)), ModTime: at, Format: tar.FormatUSTAR}); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}
