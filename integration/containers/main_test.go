package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestEtcdImage: the image is of the release whose client the root module has.
func TestEtcdImage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	client := regexp.MustCompile(`go\.etcd\.io/etcd/client/v3 (v\S+)`).FindSubmatch(text)
	if client == nil {
		t.Fatal("the root module requires no client of etcd")
	}
	if image := databases["etcd"].image; !strings.HasSuffix(image, ":"+string(client[1])) {
		t.Errorf("image %s, want that of %s, as in the root's go.mod", image, client[1])
	}
}

// TestBadCalls: a bad call is one line, before Docker is reached.
func TestBadCalls(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"mysql"}} {
		err := run(t.Context(), args, strings.NewReader(""), os.Stderr)
		if err == nil || !strings.Contains(err.Error(), "usage: containers mongodb|etcd") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want one line with the usage", args, err)
		}
	}
}
