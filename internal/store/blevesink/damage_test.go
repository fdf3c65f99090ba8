package blevesink

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"dbcontroller.dev/internal/engine/sink"
	"dbcontroller.dev/record"
)

// TestDamagedFiles: files that were overwritten or cut end no process. After at most one reopening
// and one new beginning, the index works.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	for what, damage := range map[string]func(t *testing.T, file string, content []byte){
		"first quarter":  noise(0, 4),
		"second quarter": noise(1, 4),
		"third quarter":  noise(2, 4),
		"second tenth":   noise(1, 10),
		"last tenth":     noise(9, 10),
		"cut":            func(t *testing.T, file string, content []byte) { put(t, file, content[:len(content)/2]) },
		"empty":          func(t *testing.T, file string, _ []byte) { put(t, file, nil) },
		"gone": func(t *testing.T, file string, _ []byte) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "v1")
			x := openIn(t, folder)
			var items []sink.Item
			for i := range 300 {
				items = append(items, item(fmt.Sprintf("n%03d", i), fmt.Sprintf("word%d and more", i), 1))
			}
			if err := x.Write(t.Context(), items, sink.State{Generation: 1}); err != nil {
				t.Fatal(err)
			}
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
			files, err := filepath.Glob(filepath.Join(folder, "store", "*.zap"))
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			for _, file := range files {
				content, err := os.ReadFile(file) // #nosec G304 -- of this test
				if err != nil {
					t.Fatal(err)
				}
				damage(t, file, content)
			}
			for i := range items {
				items[i].Guard.Version[0] = 2
			}
			for attempt := 0; ; attempt++ {
				x := openIn(t, folder)
				err := x.Write(t.Context(), items, sink.State{Generation: 2})
				if err == nil {
					page, err := x.Search(t.Context(), record.SearchRequest{Kind: "items", Terms: []record.SearchTerm{{Text: "word7"}}})
					if err != nil || len(page.Names) != 1 {
						t.Errorf("found %v %v", page, err)
					}
					return
				}
				if !errors.Is(err, sink.ErrDamaged) || attempt == 2 {
					t.Fatalf("attempt %d: %v", attempt, err)
				}
				end := x.Close
				if attempt == 1 {
					end = x.Remove
				}
				if err := end(); err != nil {
					t.Logf("end: %v", err)
				}
			}
		})
	}
}

// noise overwrites part n of so many parts of a file.
func noise(n, of int) func(*testing.T, string, []byte) {
	return func(t *testing.T, file string, content []byte) {
		for i := range content[len(content)*n/of : len(content)*(n+1)/of] {
			content[len(content)*n/of+i] ^= 0xa5
		}
		put(t, file, content)
	}
}

func put(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
