package lenses

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/transform/lens/propose"
)

// protoFlags are the flags of 'lens init' for drafts from protos.
type protoFlags struct {
	on       bool
	folders  []string
	messages []string
	out      string
}

func (p *protoFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.on, "protos", false, "draft from the proto files of two API versions")
	cmd.Flags().StringSliceVarP(&p.folders, "proto-path", "I", nil, "with --protos: folders in which imports are looked up")
	cmd.Flags().StringSliceVar(&p.messages, "message", nil, "with --protos: the resources, NAME or OLD=NEW (default: those with a method Get)")
	cmd.Flags().StringVar(&p.out, "out", "", "with --protos: write a lens for each resource, and service.go, into this folder")
}

// unused returns an error if one of the flags is given without --protos.
func (p *protoFlags) unused(cmd *cobra.Command) error {
	for _, name := range []string{"proto-path", "message", "out"} {
		if cmd.Flags().Changed(name) {
			return exit.Usagef("--%s needs --protos", name)
		}
	}
	return nil
}

// draft writes the drafts from two proto files.
func (p *protoFlags) draft(cmd *cobra.Command, oldFile, newFile, from, to string) error {
	old, err := propose.Proto(cmd.Context(), oldFile, p.folders)
	if err != nil {
		return exit.With(exit.Usage, oneLine(err))
	}
	now, err := propose.Proto(cmd.Context(), newFile, p.folders)
	if err != nil {
		return exit.With(exit.Usage, oneLine(err))
	}
	messages, err := propose.Resources(old, now, p.messages)
	if err != nil {
		return exit.Usagef("lens init: %w", err)
	}
	if len(messages) > 1 && (p.out == "" || from != "" || to != "") {
		var names []string
		for _, m := range messages {
			names = append(names, string(m.Old.Name()))
		}
		if p.out == "" {
			return exit.Usagef("lens init: there are several resources: choose one with --message, of %s, or write all of them with --out", strings.Join(names, ", "))
		}
		return exit.Usagef("lens init: --from and --to name one kind, and there are several resources: choose one with --message, of %s", strings.Join(names, ", "))
	}
	files := map[string][]byte{}
	var lenses []propose.StubLens
	unsure := 0
	for _, m := range messages {
		oldKind := from
		if oldKind == "" {
			oldKind = m.Kind()
		}
		newKind := to
		if newKind == "" {
			newKind = oldKind
		}
		draft, sparse, err := propose.Messages(oldKind, newKind, m)
		if err != nil {
			return exit.Usagef("lens init: %w", err)
		}
		unsure += draft.Unsure
		if p.out == "" {
			if err := terminal.Write(cmd.OutOrStdout(), draft.Text); err != nil {
				return err
			}
		}
		file := oldKind + ".yaml"
		if files[file] != nil {
			return exit.Usagef("lens init: two resources have the kind %s: draft them one at a time, with --message and --from", oldKind)
		}
		files[file] = draft.Text
		lenses = append(lenses, propose.StubLens{Message: m, File: file, From: oldKind, To: newKind, Sparse: sparse})
	}
	if p.out != "" {
		if files["service.go"], err = propose.Stub(old, now, lenses); err != nil {
			return exit.Usagef("lens init: %w", err)
		}
		if err := writeAll(cmd, p.out, files); err != nil {
			return err
		}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s to decide on: read the comments, then try the lens on records with 'dbcontroller lens try'\n", plural(int64(unsure), "thing"))
	return nil
}

// writeAll writes files into a folder. It writes none if one of them is there already, or cannot be
// written: a repetition would then find the others.
func writeAll(cmd *cobra.Command, dir string, files map[string][]byte) (err error) {
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return exit.Usagef("lens init: %s is there already: give another folder, or remove it", filepath.Join(dir, name))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return exit.With(exit.Usage, err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { // #nosec G301 -- source code, which others may read
		return exit.With(exit.Usage, err)
	}
	var written []string
	defer func() {
		if err != nil {
			for _, path := range written {
				_ = os.Remove(path) // the error is reported
			}
		}
	}()
	for _, name := range names {
		path := filepath.Join(dir, name)
		// Not over a file that somebody has made meanwhile.
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) // #nosec G302 G304 -- as above
		if err != nil {
			return exit.With(exit.Usage, err)
		}
		written = append(written, path)
		_, err = f.Write(files[name])
		if err := errors.Join(err, f.Close()); err != nil {
			return exit.With(exit.Usage, err)
		}
	}
	for _, path := range written {
		fmt.Fprintln(cmd.OutOrStdout(), path)
	}
	return nil
}

// oneLine joins the lines of an error.
func oneLine(err error) error { return errors.New(strings.Join(strings.Fields(err.Error()), " ")) }
