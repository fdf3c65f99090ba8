// Command sbom writes the modules of a Go program in CycloneDX format. It reads them from the
// program itself. The same program gives the same bytes: nothing depends on the time or the
// machine.
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM VERSION")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(w io.Writer, program, version string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read modules of %s: %w", program, err)
	}
	// An empty list would look like a program without dependencies.
	if len(info.Deps) == 0 {
		return fmt.Errorf("%s names no modules: build it with the go command", program)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		BOMRef: info.Main.Path, Type: cyclonedx.ComponentTypeApplication, Name: info.Main.Path, Version: version,
	}}
	refs := make([]string, 0, len(info.Deps))
	components := make([]cyclonedx.Component, 0, len(info.Deps)+1)
	// The standard library is linked too, and has vulnerabilities of its own.
	for _, m := range append(info.Deps, &debug.Module{Path: "std", Version: info.GoVersion}) {
		// Only the replacement was linked, so the original must not be listed.
		for m.Replace != nil {
			m = m.Replace
		}
		c, err := component(m)
		if err != nil {
			return err
		}
		components, refs = append(components, c), append(refs, c.BOMRef)
	}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: info.Main.Path, Dependencies: &refs}}
	out := cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON).SetPretty(true)
	if err := out.Encode(bom); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// component returns a module under its package URL, with its hash from go.sum.
func component(m *debug.Module) (cyclonedx.Component, error) {
	url := "pkg:golang/" + m.Path + "@" + strings.TrimPrefix(m.Version, "go")
	c := cyclonedx.Component{
		BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: url,
	}
	if sum, ok := strings.CutPrefix(m.Sum, "h1:"); ok {
		raw, err := base64.StdEncoding.DecodeString(sum)
		if err != nil {
			return c, fmt.Errorf("hash of %s: %w", m.Path, err)
		}
		c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}}
	}
	return c, nil
}
