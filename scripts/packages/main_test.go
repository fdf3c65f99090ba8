package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/blakesmith/ar"
)

var at = time.Unix(1767225600, 0).UTC()

// packed writes the packages of a program, and returns their contents by file name.
func packed(t *testing.T, version string) map[string][]byte {
	t.Helper()
	program, out := filepath.Join(t.TempDir(), "dbcontroller"), t.TempDir()
	if err := os.WriteFile(program, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(out, "../..", version, at, []string{"linux/amd64=" + program, "linux/arm64=" + program}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	made := map[string][]byte{}
	for _, e := range entries {
		if made[e.Name()], err = os.ReadFile(filepath.Join(out, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return made
}

// want has each file of a package with its mode and owners.
var want = []string{
	"/etc/dbcontroller 750 root:dbcontroller",
	"/etc/dbcontroller/dbcontroller.example.yaml 640 root:dbcontroller",
	"/etc/dbcontroller/environment 600 root:root",
	"/etc/dbcontroller/proxy.example.yaml 640 root:dbcontroller",
	"/usr/bin/dbcontroller 755 root:root",
	"/usr/lib/systemd/system/dbcontroller-proxy.service 644 root:root",
	"/usr/lib/systemd/system/dbcontroller.service 644 root:root",
	"/usr/share/doc/dbcontroller/copyright 644 root:root",
}

// TestDebian: the package has these files, keeps changed configurations, and has its scripts.
func TestDebian(t *testing.T) {
	t.Parallel()
	made := packed(t, "v1.2.3")
	content := made["dbcontroller_1.2.3-1_amd64.deb"]
	if len(made) != 4 || content == nil {
		t.Fatal(len(made), "packages without the one for amd64")
	}
	var got []string
	control := map[string]string{}
	for r := ar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(strings.TrimSuffix(h.Name, "/"), ".tar.gz") {
			continue
		}
		z, err := gzip.NewReader(r)
		if err != nil {
			t.Fatal(err)
		}
		for f := tar.NewReader(z); ; {
			e, err := f.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(h.Name, "control") {
				text, err := io.ReadAll(f)
				if err != nil {
					t.Fatal(err)
				}
				control[strings.TrimPrefix(e.Name, "./")] = string(text)
				continue
			}
			name := "/" + strings.Trim(strings.TrimPrefix(e.Name, "."), "/")
			// Folders of the system are not ours.
			if e.Typeflag == tar.TypeReg || name == "/etc/dbcontroller" {
				got = append(got, fmt.Sprintf("%s %o %s:%s", name, e.Mode&0o777, e.Uname, e.Gname))
			}
			if !e.ModTime.Equal(at) {
				t.Errorf("%s is of %v", name, e.ModTime)
			}
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("the package has\n%s", strings.Join(got, "\n"))
	}
	if kept := strings.Fields(control["conffiles"]); len(kept) != 3 {
		t.Errorf("kept are %q", kept)
	}
	if !strings.Contains(control["control"], "Pre-Depends: passwd") || !strings.Contains(control["preinst"], "groupadd") || control["prerm"] == "" || control["postrm"] == "" {
		t.Errorf("%q", control)
	}
}

// TestRPM has the same files.
func TestRPM(t *testing.T) {
	t.Parallel()
	h := header(t, packed(t, "v1.2.3")["dbcontroller-1.2.3-1.x86_64.rpm"])
	modes, folders := h.numbers(1030, 2), h.numbers(1116, 4)
	var got []string
	for i, base := range h.texts(1117) {
		path := filepath.Join(h.texts(1118)[folders[i]], base)
		got = append(got, fmt.Sprintf("%s %o %s:%s", path, modes[i]&0o777, h.texts(1039)[i], h.texts(1040)[i]))
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("the package has\n%s", strings.Join(got, "\n"))
	}
	if host, before := h.texts(1007)[0], h.texts(1023)[0]; host != "dbcontroller.dev" || !strings.Contains(before, "groupadd") {
		t.Errorf("built on %s, with the script %q", host, before)
	}
}

// rpmHeader is the header of an RPM package: entries by tag, and their data.
type rpmHeader struct {
	entries map[uint32][2]uint32 // offset and count
	data    []byte
}

// header finds the second header behind the lead of 96 bytes. The first one has signatures, and is
// filled up to eight bytes.
func header(t *testing.T, content []byte) rpmHeader {
	t.Helper()
	var h rpmHeader
	rest := content[96:]
	for range 2 {
		if !bytes.HasPrefix(rest, []byte{0x8e, 0xad, 0xe8, 1}) {
			t.Fatalf("no header, but % x", rest[:4])
		}
		n, size := binary.BigEndian.Uint32(rest[8:]), binary.BigEndian.Uint32(rest[12:])
		h = rpmHeader{map[uint32][2]uint32{}, rest[16+16*n:][:size]}
		for i := range n {
			e := rest[16+16*i:]
			h.entries[binary.BigEndian.Uint32(e)] = [2]uint32{binary.BigEndian.Uint32(e[8:]), binary.BigEndian.Uint32(e[12:])}
		}
		rest = rest[16+16*n+(size+7)/8*8:]
	}
	return h
}

func (h rpmHeader) texts(tag uint32) []string {
	e := h.entries[tag]
	return strings.Split(string(h.data[e[0]:]), "\x00")[:e[1]]
}

func (h rpmHeader) numbers(tag uint32, size int) []int {
	e := h.entries[tag]
	out := make([]int, e[1])
	for i := range out {
		for _, b := range h.data[int(e[0])+i*size:][:size] {
			out[i] = out[i]<<8 | int(b)
		}
	}
	return out
}

// TestSameBytes of the same programs.
func TestSameBytes(t *testing.T) {
	t.Parallel()
	one, two := packed(t, "v0.0.0-ci"), packed(t, "v0.0.0-ci")
	for name, content := range one {
		if !bytes.Equal(content, two[name]) {
			t.Errorf("%s differs from itself", name)
		}
	}
}

// TestRefuses writes no file.
func TestRefuses(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	for want, args := range map[string][]string{
		"give -out":         nil,
		"is not linux/ARCH": {"darwin/amd64=x"},
		`"bin/x" is not l`:  {"bin/x"},
		"none":              {"linux/amd64=" + filepath.Join(t.TempDir(), "none")},
	} {
		if err := write(out, "../..", "v1", at, args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
	if entries, err := os.ReadDir(out); err != nil || len(entries) > 0 {
		t.Error(entries, err)
	}
}
