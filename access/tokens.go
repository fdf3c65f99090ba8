package access

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"

	"go.uber.org/zap"

	"dbcontroller.dev/watchedfile"
)

// Tokens proves identities by bearer tokens that a file lists, one to a line:
//
//	# name  token, or its hash: printf %s TOKEN | sha256sum
//	alice   3q2-9yPc…
//	billing sha256:9f86d081884c7d65…
//
// A name may stand in several lines, so that a token can be replaced without a gap. Only
// hashes are kept.
type Tokens struct {
	file *watchedfile.Value[[]token]
}

type token struct {
	name string
	hash [sha256.Size]byte
}

var _ Authenticator = (*Tokens)(nil)

const (
	// leastToken is what a token must have: fewer characters can be guessed.
	leastToken = 20
	hashPrefix = "sha256:"
)

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@/-]{0,199}$`)

// OpenTokens reads the file.
func OpenTokens(path string, log *zap.Logger) (*Tokens, error) {
	f, err := watchedfile.Open("tokens", log, func(texts [][]byte) ([]token, error) { return parseTokens(path, texts[0]) }, watchedfile.Secret(path))
	if err != nil {
		return nil, err
	}
	return &Tokens{file: f}, nil
}

// parseTokens never puts what it reads into an error: it may be a token, and what stands in
// the place of a name as well.
func parseTokens(path string, text []byte) ([]token, error) {
	var all []token
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		at := fmt.Sprintf("%s:%d", filepath.Base(path), n)
		if len(fields) != 2 {
			return nil, fmt.Errorf("%s: want a name and a token", at)
		}
		if !tokenName.MatchString(fields[0]) {
			return nil, fmt.Errorf("%s: the name is none: want letters, digits, and any of . _ @ / -, and a token after it", at)
		}
		t := token{name: fields[0]}
		if digits, hashed := strings.CutPrefix(fields[1], hashPrefix); hashed {
			sum, err := hex.DecodeString(digits)
			if err != nil || len(sum) != sha256.Size {
				return nil, fmt.Errorf("%s: want 64 hexadecimal digits after %s", at, hashPrefix)
			}
			copy(t.hash[:], sum)
		} else {
			if len(fields[1]) < leastToken {
				return nil, fmt.Errorf("%s: the token has fewer than %d characters: make one with 'openssl rand -hex 32'", at, leastToken)
			}
			t.hash = sha256.Sum256([]byte(fields[1]))
		}
		for _, other := range all {
			if other.hash == t.hash && other.name != t.name {
				return nil, fmt.Errorf("%s: another name has this token already", at)
			}
		}
		all = append(all, t)
	}
	if lines.Err() != nil {
		return nil, fmt.Errorf("%s: a line is too long", filepath.Base(path))
	}
	if len(all) == 0 {
		return nil, errors.New(filepath.Base(path) + ": it has no token")
	}
	return all, nil
}

func (t *Tokens) Wants() string { return "a bearer token" }

// Authenticate implements Authenticator. What is compared are hashes, and all of them, so
// that the time that it takes tells nothing.
func (t *Tokens) Authenticate(_ context.Context, r *http.Request) (Identity, error) {
	given, ok := bearer(r)
	if !ok {
		return Identity{}, ErrNoProof
	}
	hash := sha256.Sum256([]byte(given))
	name := ""
	for _, t := range t.file.Get() {
		if subtle.ConstantTimeCompare(hash[:], t.hash[:]) == 1 {
			name = t.name
		}
	}
	if name == "" {
		return Identity{}, ErrNoProof
	}
	return Identity{Name: "token:" + name, Proof: "token"}, nil
}
