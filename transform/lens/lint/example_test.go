package lint_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"dbcontroller.dev/transform/lens/lint"
)

// Records of a file are taken there and back before anything is moved.
func ExampleRun() {
	dir, err := os.MkdirTemp("", "lens")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "packages.yaml")
	if err := os.WriteFile(path, []byte("operations: [convert: {field: size, from: int, to: string}]"), 0o600); err != nil {
		panic(err)
	}
	files, errs := lint.Load([]lint.Input{{Path: path}}, nil)
	if len(errs) > 0 {
		panic(errs)
	}
	source, err := lint.Open("sample", strings.NewReader(`{"_id": "a", "size": 5} {"_id": "b", "size": "large"}`))
	if err != nil {
		panic(err)
	}
	report, err := lint.Run(context.Background(), []lint.Subject{files[0].Subject()},
		[]lint.Sample{{Kind: "packages", Source: source}}, lint.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println(report.Problems())
	fmt.Println(report.Failures[0].Field, report.Failures[0].Reason)
	// Output:
	// [1 record fails]
	// size is of type string, not int
}
