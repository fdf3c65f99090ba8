package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"dbcontroller.dev/integration/subprocess"
)

// relayCommand makes this program a relay to an address. It copies bytes between connections, looks
// at none of them, and delivers each after a time. Without one it is what any proxy of one process
// costs at least; with one it stands for distance.
const relayCommand = "relay"

func relay(ctx context.Context, to string, late time.Duration) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	// It ends with its parent.
	for {
		client, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			server, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
			if err != nil {
				_ = client.Close() // the client sees that there is no server
				return
			}
			go forward(server, client, late)
			forward(client, server, late)
		}()
	}
}

// forward copies bytes until one side ends, and then ends the other one. What is under way has no
// bound, as on a long line.
func forward(to, from net.Conn, late time.Duration) {
	defer to.Close() //nolint:errcheck // both ends are of this benchmark
	if late == 0 {
		_, _ = io.Copy(to, from)
		return
	}
	type piece struct {
		due time.Time
		b   []byte
	}
	pieces := make(chan piece, 1<<16)
	go func() {
		defer close(pieces)
		for {
			b := make([]byte, 32<<10)
			n, err := from.Read(b)
			if err != nil {
				return
			}
			pieces <- piece{time.Now().Add(late), b[:n:n]}
		}
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.b); err != nil {
			_ = from.Close() // ends the reader
		}
	}
}

// startRelay starts a relay to a cluster's member, which delivers late. It returns a connection
// string for it.
func (b *bench) startRelay(ctx context.Context, to *cluster, late time.Duration) (_ *subprocess.Process, uri string, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	out, err := os.CreateTemp(b.dir, relayCommand)
	if err != nil {
		return nil, "", err
	}
	defer out.Close()                                                                      //nolint:errcheck // the process has its own descriptor
	cmd := exec.Command(program, relayCommand, to.server.Nodes()[0].Addr(), late.String()) //nolint:noctx // stopped in order by the caller
	cmd.Stdout, cmd.Stderr = out, out
	p, err := subprocess.Start(cmd)
	if err != nil {
		return nil, "", err
	}
	for {
		text, err := os.ReadFile(out.Name())
		if err == nil && !p.Running() {
			err = fmt.Errorf("the relay has ended: %s", text)
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			p.Stop(grace / 3)
			return nil, "", err
		}
		if address, ok := strings.CutSuffix(string(text), "\n"); ok {
			return p, "mongodb://" + address + "/?directConnection=true", nil
		}
		rest(ctx, 10*time.Millisecond)
	}
}
