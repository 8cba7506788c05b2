# The OpenCL device, over PoCL here (deploy/setup.sh). Without a driver it says SKIP.
NIGHTLY_LIMIT := 5400
.PHONY: check-opencl check-opencl-nightly
check-opencl: all $(BUILD)/device_test ## the OpenCL device: contract, some cases, a network, faults
	$(Q)sh tests/check.sh opencl 'sh tests/conform/opencl/run.sh $(BUILD)'
check-opencl-nightly: ## all cases in all forms of kernels, and random modules (an hour or two; N,
## SEED)
check-opencl-nightly: all $(BUILD)/device_test $(HLO_DIFF)
	$(Q)GROUP_LIMIT=$(NIGHTLY_LIMIT) sh tests/check.sh \
	  opencl 'sh tests/conform/opencl/run.sh $(BUILD) --all' \
	  fuzz-opencl '$(PYTHON) tests/fuzz-hlo/fuzz_hlo.py --diff $(HLO_DIFF) --device opencl \
	    --n $(N) --seed $(SEED) --out build/fuzz-opencl' \
	  fuzz-opencl-gpu 'HLOD_OPENCL_FORM=gpu $(PYTHON) tests/fuzz-hlo/fuzz_hlo.py \
	    --diff $(HLO_DIFF) --device opencl --n $(N) --seed $(SEED) --out build/fuzz-opencl' \
	  fuzz-opencl-tiles 'HLOD_OPENCL_FORM=tiles $(PYTHON) tests/fuzz-hlo/fuzz_hlo.py \
	    --diff $(HLO_DIFF) --device opencl --theme contraction --n $(N) --seed $(SEED) \
	    --out build/fuzz-opencl'
