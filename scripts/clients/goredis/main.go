// Sends the list of commands, or a load, by go-redis. Arguments: `commands LIST PORTS`, `load FILE PORTS` or `patient FILE PORTS`.
// See scripts/clients.sh.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	beforeReplicas = 1500 * time.Millisecond
	workers        = 2
	pace           = 20 * time.Millisecond
	// With so many attempts a failover's second passes within one call.
	patientAttempts = 20
)

var (
	background = context.Background()
	word       = regexp.MustCompile(`"([^"]*)"|(\S+)`)
)

type command struct {
	number int
	words  []interface{}
}

// step is a kind (0, or the line's first character) and commands with the numbers of their lines.
type step struct {
	kind     byte
	commands []command
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func connect(ports []string, settings redis.ClusterOptions) *redis.ClusterClient {
	for _, port := range ports {
		settings.Addrs = append(settings.Addrs, "127.0.0.1:"+port)
	}
	return redis.NewClusterClient(&settings)
}

// wordsOf gives the words of a command; double quotes enclose a word with spaces.
func wordsOf(text string) []interface{} {
	var words []interface{}
	for _, found := range word.FindAllStringSubmatch(text, -1) {
		words = append(words, found[1]+found[2])
	}
	return words
}

func readSteps(path string) []step {
	file, err := os.Open(path)
	check(err)
	defer file.Close()
	var steps []step
	last := byte(0)
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		line, kind := strings.TrimSpace(lines.Text()), byte(0)
		if len(line) > 2 && line[1] == ' ' && strings.IndexByte("|&~=", line[0]) >= 0 {
			kind, line = line[0], line[2:]
		}
		if line != "" && line[0] != '#' {
			one := command{number, wordsOf(line)}
			if (kind == '|' || kind == '&') && last == kind {
				steps[len(steps)-1].commands = append(steps[len(steps)-1].commands, one)
			} else {
				steps = append(steps, step{kind, []command{one}})
			}
		}
		last = kind
		if line == "" {
			last = 0
		}
	}
	check(lines.Err())
	return steps
}

// plain gives a reply as JSON has it.
func plain(reply interface{}, err error) interface{} {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		return map[string]string{"error": err.Error()}
	}
	switch reply := reply.(type) {
	case error:
		return plain(nil, reply)
	case []interface{}:
		all := []interface{}{}
		for _, one := range reply {
			all = append(all, plain(one, nil))
		}
		return all
	case map[interface{}]interface{}:
		return fmt.Sprint(reply)
	}
	return reply
}

func emit(number int, reply interface{}) {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	check(encoder.Encode(reply))
	fmt.Printf("%d\t%s", number, text.String())
}

// sendTogether gives the reply of each command, and the error of the pipeline or transaction as a whole.
func sendTogether(pipeline redis.Pipeliner, commands []command) interface{} {
	var sent []*redis.Cmd
	for _, one := range commands {
		sent = append(sent, pipeline.Do(background, one.words...))
	}
	_, err := pipeline.Exec(background)
	replies := []interface{}{}
	for _, one := range sent {
		replies = append(replies, plain(one.Result()))
	}
	return map[string]interface{}{"replies": replies, "whole": plain("done", err)}
}

func allKeys(cluster *redis.ClusterClient) ([]string, error) {
	var mutex sync.Mutex
	var keys []string
	err := cluster.ForEachMaster(background, func(ctx context.Context, node *redis.Client) error {
		scan := node.Scan(ctx, 0, "*", 0).Iterator()
		for scan.Next(ctx) {
			mutex.Lock()
			keys = append(keys, scan.Val())
			mutex.Unlock()
		}
		return scan.Err()
	})
	sort.Strings(keys)
	return keys, err
}

func sendCommands(path string, ports []string) {
	cluster := connect(ports, redis.ClusterOptions{})
	var replicas *redis.ClusterClient
	for _, one := range readSteps(path) {
		last := one.commands[len(one.commands)-1]
		switch one.kind {
		case '|':
			emit(last.number, sendTogether(cluster.Pipeline(), one.commands))
		case '&':
			emit(last.number, sendTogether(cluster.TxPipeline(), one.commands))
		case '=':
			keys, err := allKeys(cluster)
			emit(last.number, plain(keys, err))
		case '~':
			if replicas == nil {
				time.Sleep(beforeReplicas)
				replicas = connect(ports, redis.ClusterOptions{ReadOnly: true, RouteRandomly: true})
			}
			emit(last.number, plain(replicas.Do(background, last.words...).Result()))
		default:
			emit(last.number, plain(cluster.Do(background, last.words...).Result()))
		}
	}
}

// seen is what one worker of a load saw.
type seen struct {
	acknowledged []string
	errors       map[string]int
	wrong        int
	longest      time.Duration
}

// work writes one key after the other, and reads each back.
func work(cluster *redis.ClusterClient, number int, stopping <-chan struct{}) *seen {
	saw := &seen{errors: map[string]int{}}
	for n := 0; ; {
		select {
		case <-stopping:
			return saw
		case <-time.After(pace):
		}
		key, value := fmt.Sprintf("go-redis:%d:%d", number, n), fmt.Sprintf("value%d", n)
		begun := time.Now()
		err := cluster.Set(background, key, value, 0).Err()
		if err == nil {
			saw.acknowledged = append(saw.acknowledged, key+"\t"+value+"\n")
			n++
			var read string
			read, err = cluster.Get(background, key).Result()
			if errors.Is(err, redis.Nil) || err == nil && read != value {
				saw.wrong++
				err = nil
			}
		}
		if err != nil {
			// Whatever the library gives reaches the program. The outcome of a write is open: it is sent again.
			text := err.Error()
			if len(text) > 120 {
				text = text[:120]
			}
			saw.errors[text]++
		}
		if took := time.Since(begun); took > saw.longest {
			saw.longest = took
		}
	}
}

func load(path string, ports []string, settings redis.ClusterOptions) {
	cluster := connect(ports, settings)
	stopping := make(chan struct{})
	all := make([]*seen, workers)
	var running sync.WaitGroup
	for number := range all {
		running.Add(1)
		go func(number int) {
			defer running.Done()
			all[number] = work(cluster, number, stopping)
		}(number)
	}
	fmt.Println("ready")
	// The input ends when the load is to end, and with the program that started this one.
	_, err := io.Copy(io.Discard, os.Stdin)
	check(err)
	close(stopping)
	running.Wait()
	file, err := os.Create(path)
	check(err)
	failures, wrong, longest := map[string]int{}, 0, time.Duration(0)
	for _, saw := range all {
		for _, line := range saw.acknowledged {
			_, err = file.WriteString(line)
			check(err)
		}
		for text, count := range saw.errors {
			failures[text] += count
		}
		wrong += saw.wrong
		if saw.longest > longest {
			longest = saw.longest
		}
	}
	check(file.Close())
	result := map[string]interface{}{"errors": failures, "wrong": wrong, "longest_s": longest.Seconds()}
	check(json.NewEncoder(os.Stdout).Encode(result))
}

func main() {
	mode, file, ports := os.Args[1], os.Args[2], os.Args[3:]
	switch mode {
	case "load":
		load(file, ports, redis.ClusterOptions{})
	case "patient":
		load(file, ports, redis.ClusterOptions{MaxRedirects: patientAttempts})
	default:
		sendCommands(file, ports)
	}
}
