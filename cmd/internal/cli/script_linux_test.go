package cli

import (
	"os/exec"
	"testing"
)

func TestStoppedScriptsGoOn(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "kill -STOP $$; exit 7")
	cmd.Dir = t.TempDir()
	must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the command
	eventually(t, "it goes on and ends", func() bool {
		goOn(cmd.Dir)
		return len(ended) > 0
	})
	if err := <-ended; exitCodeOf(err) != 7 {
		t.Error(err)
	}
}
